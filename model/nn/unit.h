// Modules, units, and the hooks through which sharding sees a model.
#pragma once

#include <memory>
#include <vector>

#include "model/autograd/tape.h"
#include "model/nn/parameter.h"

namespace zpp {

/// The only thing a model's code knows of sharding. Called on the host, in the exact order of
/// execution; forward of a unit, then (the reverse of it) backward. The root unit is around all
/// others.
class UnitHooks {
 public:
  virtual ~UnitHooks() = default;
  /// After this the unit's weights are bound.
  virtual void before_forward(ParameterUnit& unit) = 0;
  virtual void after_forward(ParameterUnit& unit) = 0;
  /// After this weights and gradients are bound.
  virtual void before_backward(ParameterUnit& unit) = 0;
  /// All gradients of the unit have been enqueued.
  virtual void after_backward(ParameterUnit& unit) = 0;
};

/// A part of a model: owns parameters through references, has functions from Values to Values.
class Module {
 public:
  explicit Module(const Scope&) {}
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
};

/// Gathered together, released together, recomputed together.
class Unit : public Module {
 public:
  explicit Unit(const Scope& scope) : Module(scope), parameters_(scope.unit()) {}

  /// Runs forward() between the hooks. When the tape recomputes, only the input and the position of
  /// the random numbers are kept, and the backward pass runs forward() again under one hook call.
  Value operator()(const Value& x);

  ParameterUnit& parameters() const { return parameters_; }

 protected:
  /// From one activation to another. Called again in the backward pass under recompute: it must not
  /// depend on anything but x, the parameters and the tape.
  virtual Value forward(const Value& x) = 0;

 private:
  Value run_recorded(const Value& x);
  Value run_recomputed(const Value& x);

  ParameterUnit& parameters_;
};

/// n units called in order, named by their index.
template <class U>
class Stack {
 public:
  template <class... A>
  Stack(const Scope& scope, int64_t n, const A&... args) {
    for (int64_t i = 0; i < n; ++i) units_.push_back(std::make_unique<U>(scope / i, args...));
  }
  Value operator()(Value x) {
    for (auto& u : units_) x = (*u)(x);
    return x;
  }

 private:
  std::vector<std::unique_ptr<U>> units_;
};

}  // namespace zpp

// Hooks for one device that holds everything: all weights and gradients stay bound. The reference
// that sharding is tested against.
#pragma once

#include <vector>

#include "core/runtime.h"
#include "model/nn/unit.h"

namespace zpp {

class ResidentHooks final : public UnitHooks {
 public:
  /// Allocates flat weights and gradients for every unit of `table`, lays the units out and binds
  /// them.
  ResidentHooks(ParameterTable& table, Runtime& runtime, int64_t alignment = 64);

  void before_forward(ParameterUnit&) override {}
  void after_forward(ParameterUnit&) override {}
  void before_backward(ParameterUnit&) override {}
  void after_backward(ParameterUnit&) override {}

  /// Flat weights of unit i of the table, to be written by initialisation, optimizer or import.
  const View& weights(size_t unit) const { return weights_[unit].view(); }

 private:
  std::vector<Tensor> weights_, grads_;
};

}  // namespace zpp

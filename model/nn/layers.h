// The layers that most models are made of: an operation with its parameters.
#pragma once

#include "model/nn/unit.h"

namespace zpp {

/// y = x w^T + bias. Parameters "weight" (out, in) and, when wanted, "bias" (out), which starts at
/// zero.
class Linear : public Module {
 public:
  struct Options {
    bool bias = true;
    float init_std = 0.02f;
  };
  Linear(const Scope& scope, int64_t in, int64_t out, const Options& options);
  Value operator()(const Value& x) const;

 private:
  Parameter& weight_;
  Parameter* bias_;
};

/// Parameters "weight" and, when wanted, "bias" (width).
class LayerNorm : public Module {
 public:
  struct Options {
    bool bias = true;
    double eps = 1e-5;
  };
  LayerNorm(const Scope& scope, int64_t width, const Options& options);
  Value operator()(const Value& x) const;

 private:
  Parameter& weight_;
  Parameter* bias_;
  const float eps_;
};

/// Parameter "weight" (width).
class RmsNorm : public Module {
 public:
  RmsNorm(const Scope& scope, int64_t width, double eps);
  Value operator()(const Value& x) const;

 private:
  Parameter& weight_;
  const float eps_;
};

}  // namespace zpp

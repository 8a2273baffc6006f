// Parameters, the units they are grouped in, and the scopes that name them.
//
// A unit is what is gathered, released and recomputed together: each block of a model, and the root
// (embeddings, final norm, head). Its parameters are one flat buffer; a Parameter is (unit, offset,
// shape). The bytes belong to whoever shards them: hooks bind a unit to weights and gradients, and
// release it again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/rng.h"
#include "core/types.h"

namespace zpp {

class Stream;
class ParameterUnit;

/// How a parameter starts. Values come from Philox(seed, hash of the name, element), so nobody ever
/// needs the whole model and they do not depend on world size.
struct Init {
  enum Kind : uint8_t { kZeros, kOnes, kNormal } kind = kNormal;
  float stddev = 0.02f;
};

class Parameter {
 public:
  /// Made by Scope::parameter only.
  Parameter(ParameterUnit& unit, std::string name, const Shape& shape, Init init);
  Parameter(const Parameter&) = delete;
  Parameter& operator=(const Parameter&) = delete;

  /// Full name, "blocks.3.qkv": the key in checkpoints.
  const std::string& name() const { return name_; }
  const Shape& shape() const { return shape_; }
  const Init& init() const { return init_; }
  int64_t numel() const { return shape_.numel(); }
  /// First element in the unit's flat buffer.
  int64_t offset() const { return offset_; }
  ParameterUnit& unit() const { return unit_; }

  /// The weights, in the compute dtype. Take it anew for each use: kernels refuse a view of a unit
  /// that has been released since.
  /// Errors:  kFailedPrecondition while the unit is released
  View view() const;
  /// Never updated: see ParameterTable::freeze().
  bool frozen() const { return frozen_; }
  /// Where this use's gradient goes (f32; f64 for f64 models): the first writer of a step stores,
  /// later ones add. Absent for a frozen parameter, whose gradient nobody computes. Valid during the
  /// unit's backward.
  /// Errors:  kFailedPrecondition when no gradient buffer is bound
  Grad grad();

 private:
  friend class ParameterUnit;
  friend class ParameterTable;

  ParameterUnit& unit_;
  const std::string name_;
  const Shape shape_;
  const Init init_;
  int64_t offset_ = 0;
  bool grad_written_ = false;
  bool frozen_ = false;
};

class ParameterUnit {
 public:
  ParameterUnit(std::string name, DType dtype) : name_(std::move(name)), dtype_(dtype) {}

  /// "root" or the path of the block, "blocks.3".
  const std::string& name() const { return name_; }
  DType dtype() const { return dtype_; }
  DType grad_dtype() const { return accumulator_of(dtype_); }
  std::span<const std::unique_ptr<Parameter>> parameters() const { return parameters_; }

  /// Places the parameters one after the other, each on a multiple of `alignment` elements, matrices
  /// (rank 2 and more) on one of `matrix_alignment`, and pads the end to a multiple of `total`. Call
  /// before the first bind.
  void layout(int64_t alignment, int64_t total = 1, int64_t matrix_alignment = 1);
  /// Elements of the flat buffer, padding included.
  int64_t flat_numel() const { return flat_numel_; }
  /// Whether none of its parameters is ever updated: it has no gradient then.
  bool frozen() const;

  /// Makes the flat weights (compute dtype) readable, or releases them when empty: views taken
  /// before go stale.
  /// Shapes:  (flat_numel).
  /// Errors:  kInvalidArgument if shape or dtype disagree
  void bind_weights(const View& weights);
  /// Where gradients land (grad_dtype), or nowhere when empty.
  void bind_grads(const View& grads);
  /// From now on the first gradient written to each parameter replaces what is there.
  void restart_grads();
  /// Zeroes the gradients of parameters that nothing has written since restart_grads() and the
  /// padding between.
  void finish_grads(Stream& stream);

  const View& weights() const { return weights_; }
  const View& grads() const { return grads_; }

 private:
  friend class Parameter;
  friend class Scope;

  const std::string name_;
  const DType dtype_;
  std::vector<std::unique_ptr<Parameter>> parameters_;
  int64_t flat_numel_ = 0;
  View weights_, grads_;
  uint32_t generation_ = 0;
};

/// All parameters of one model, by unit, in the order in which the model was built. units()[0] is
/// the root.
class ParameterTable {
 public:
  explicit ParameterTable(DType dtype);
  ParameterTable(const ParameterTable&) = delete;
  ParameterTable& operator=(const ParameterTable&) = delete;

  DType dtype() const { return dtype_; }
  std::span<const std::unique_ptr<ParameterUnit>> units() const { return units_; }
  ParameterUnit& root() const { return *units_.front(); }
  /// Nullptr when there is no such parameter.
  Parameter* find(std::string_view name) const;
  int64_t numel() const;  // without padding
  /// Parameters that keep their initial values: each name is a parameter's or of what is around it,
  /// "tokens" or "blocks.0".
  /// Errors: kInvalidArgument for a name that fits no parameter, or if all are frozen
  void freeze(std::span<const std::string> names);

 private:
  friend class Scope;

  const DType dtype_;
  std::vector<std::unique_ptr<ParameterUnit>> units_;
};

/// "Where in the model am I": where names and units of parameters come from.
class Scope {
 public:
  /// The top of a model.
  explicit Scope(ParameterTable& table) : Scope(table, "") {}

  Scope operator/(std::string_view child) const;
  Scope operator/(int64_t index) const { return *this / std::to_string(index); }
  const std::string& path() const { return path_; }

  /// Declares a parameter in the innermost unit around this scope. Lives as long as the table.
  /// Errors: kInvalidArgument if the name is taken
  Parameter& parameter(std::string_view name, const Shape& shape, Init init = {}) const;

  /// The unit that starts at this scope, made on first call. Unit's constructor calls it.
  ParameterUnit& unit() const;

 private:
  Scope(ParameterTable& table, std::string path) : table_(table), path_(std::move(path)) {}

  ParameterTable& table_;
  std::string path_;
};

/// Enqueues the initial values of elements [begin, begin + out.numel()) of `parameter` into `out`.
void fill_initial(Stream& stream, const Parameter& parameter, int64_t begin, const View& out,
                  uint64_t seed);

}  // namespace zpp

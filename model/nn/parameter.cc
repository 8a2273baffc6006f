#include "model/nn/parameter.h"

#include <fmt/format.h>

#include <utility>

#include "kernels/elementwise.h"

namespace zpp {
namespace {

std::string join(std::string_view path, std::string_view name) {
  return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

/// "blocks.3.mlp" and "blocks.3" lie within the unit "blocks.3", "blocks.31" does not.
bool within(std::string_view path, std::string_view unit) {
  return path.starts_with(unit) && (path.size() == unit.size() || path[unit.size()] == '.');
}

}  // namespace

Parameter::Parameter(ParameterUnit& unit, std::string name, const Shape& shape, Init init)
    : unit_(unit), name_(std::move(name)), shape_(shape), init_(init) {}

View Parameter::view() const {
  if (!unit_.weights_) {
    throw Error(
        Code::kFailedPrecondition,
        fmt::format("parameter {} was used while its unit {} is released", name_, unit_.name()));
  }
  View view = unit_.weights_.slice(0, offset_, offset_ + numel()).reshape(shape_);
  view.generation = &unit_.generation_;
  view.seen = unit_.generation_;
  return view;
}

Grad Parameter::grad() {
  if (frozen_) return {};
  if (!unit_.grads_) {
    throw Error(Code::kFailedPrecondition,
                fmt::format("parameter {}: no gradient buffer is bound; gradients exist only in "
                            "the backward pass of unit {}",
                            name_, unit_.name()));
  }
  const View view = unit_.grads_.slice(0, offset_, offset_ + numel()).reshape(shape_);
  return {view, std::exchange(grad_written_, true)};
}

void ParameterUnit::layout(int64_t alignment, int64_t total, int64_t matrix_alignment) {
  const auto round_up = [](int64_t n, int64_t to) { return (n + to - 1) / to * to; };
  int64_t offset = 0;
  for (const auto& p : parameters_) {
    if (p->shape().rank() >= 2) offset = round_up(offset, matrix_alignment);
    p->offset_ = offset;
    offset += round_up(p->numel(), alignment);
  }
  flat_numel_ = round_up(offset, total);
}

void ParameterUnit::bind_weights(const View& weights) {
  if (weights && (weights.shape != Shape{flat_numel_} || weights.dtype != dtype_)) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("unit {}: weights are {} {} but should be ({}) {}", name_, weights.shape.str(),
                    to_string(weights.dtype), flat_numel_, to_string(dtype_)));
  }
  weights_ = weights;
  ++generation_;
}

void ParameterUnit::bind_grads(const View& grads) {
  if (grads && (grads.shape != Shape{flat_numel_} || grads.dtype != grad_dtype())) {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("unit {}: gradients are {} {} but should be ({}) {}", name_, grads.shape.str(),
                    to_string(grads.dtype), flat_numel_, to_string(grad_dtype())));
  }
  grads_ = grads;
}

void ParameterUnit::restart_grads() {
  for (const auto& p : parameters_) p->grad_written_ = false;
}

void ParameterUnit::finish_grads(Stream& stream) {
  int64_t written_to = 0;
  const auto zero = [&](int64_t begin, int64_t end) {
    if (end > begin) kernels::fill(stream, grads_.slice(0, begin, end), 0.0);
  };
  for (const auto& p : parameters_) {
    zero(written_to, p->offset_);
    if (!p->grad_written_) zero(p->offset_, p->offset_ + p->numel());
    written_to = p->offset_ + p->numel();
  }
  zero(written_to, flat_numel_);
}

bool ParameterUnit::frozen() const {
  return std::all_of(parameters_.begin(), parameters_.end(),
                     [](const auto& p) { return p->frozen(); });
}

ParameterTable::ParameterTable(DType dtype) : dtype_(dtype) {
  units_.push_back(std::make_unique<ParameterUnit>("root", dtype));
}

Parameter* ParameterTable::find(std::string_view name) const {
  for (const auto& unit : units_) {
    for (const auto& p : unit->parameters()) {
      if (p->name() == name) return p.get();
    }
  }
  return nullptr;
}

int64_t ParameterTable::numel() const {
  int64_t total = 0;
  for (const auto& unit : units_) {
    for (const auto& p : unit->parameters()) total += p->numel();
  }
  return total;
}

void ParameterTable::freeze(std::span<const std::string> names) {
  bool some_left = names.empty();
  for (const std::string& name : names) {
    bool found = false;
    for (const auto& unit : units_) {
      for (const auto& p : unit->parameters()) {
        if (!within(p->name(), name)) continue;
        p->frozen_ = found = true;
      }
    }
    if (!found) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("no parameter is called \"{}\" or lies in it", name));
    }
  }
  for (const auto& unit : units_) {
    some_left |= !unit->parameters().empty() && !unit->frozen();
  }
  if (!some_left) {
    throw Error(Code::kInvalidArgument, "all parameters are frozen: nothing is left to train");
  }
}

Scope Scope::operator/(std::string_view child) const { return Scope(table_, join(path_, child)); }

Parameter& Scope::parameter(std::string_view name, const Shape& shape, Init init) const {
  std::string full = join(path_, name);
  if (table_.find(full) != nullptr) {
    throw Error(Code::kInvalidArgument, fmt::format("parameter {} is declared twice", full));
  }
  // Looked up here, not kept: a scope is usually older than the unit it is in, which Unit's
  // constructor makes.
  ParameterUnit* home = &table_.root();
  size_t deepest = 0;
  for (const auto& unit : table_.units().subspan(1)) {
    if (unit->name().size() > deepest && within(path_, unit->name())) {
      home = unit.get();
      deepest = unit->name().size();
    }
  }
  home->parameters_.push_back(std::make_unique<Parameter>(*home, std::move(full), shape, init));
  return *home->parameters_.back();
}

ParameterUnit& Scope::unit() const {
  if (path_.empty()) return table_.root();
  for (const auto& unit : table_.units().subspan(1)) {
    if (unit->name() == path_) return *unit;
  }
  table_.units_.push_back(std::make_unique<ParameterUnit>(path_, table_.dtype_));
  return *table_.units_.back();
}

void fill_initial(Stream& stream, const Parameter& parameter, int64_t begin, const View& out,
                  uint64_t seed) {
  switch (parameter.init().kind) {
    case Init::kZeros:
      return kernels::fill(stream, out, 0.0);
    case Init::kOnes:
      return kernels::fill(stream, out, 1.0);
    case Init::kNormal:
      const RngKey key{seed, hash_name(parameter.name()), static_cast<uint64_t>(begin)};
      return kernels::fill_normal(stream, out, 0.0f, parameter.init().stddev, key);
  }
}

}  // namespace zpp

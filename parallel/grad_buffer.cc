#include "parallel/grad_buffer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/rng.h"
#include "kernels/elementwise.h"

namespace zpp {

namespace {
// One is written by the backward pass while the other is on its way.
constexpr size_t kRing = 2;
}  // namespace

GradBuffers::GradBuffers(Runtime& runtime, ParameterTable& table, const RankGroups& groups,
                         StallClock& stalls, GradBuffersOptions options)
    : runtime_(runtime), groups_(groups), stalls_(stalls), options_(std::move(options)) {
  int64_t largest_inside = 0, largest = 0;
  for (const auto& unit : table.units()) {
    add_unit(*unit);
    largest = std::max(largest, unit->flat_numel());
    if (unit.get() != &table.root()) largest_inside = std::max(largest_inside, unit->flat_numel());
  }
  const DType dtype = table.root().grad_dtype();
  if (spread()) {
    root_.memory = runtime.tensor({table.root().flat_numel()}, dtype);
    ring_.resize(kRing);
    for (Buffer& buffer : ring_) buffer.memory = runtime.tensor({largest_inside}, dtype);
  }
  if (groups.world() > 1 && table.dtype() != dtype)
    wire_ = runtime.tensor({largest}, table.dtype());
}

void GradBuffers::add_unit(ParameterUnit& unit) {
  const ShardLayout& layout = groups_.layout();
  const int64_t flat = unit.flat_numel();
  const Range none;
  const Range kept = unit.frozen() ? none : spread() ? layout.grads(flat) : Range{0, flat};
  const Range part = unit.frozen() ? none : layout.optimizer(flat);
  index_[&unit] = units_.size();
  UnitGrads grads;
  grads.unit = &unit;
  grads.segments = segments_of(unit);
  grads.kept = runtime_.tensor({kept.size()}, unit.grad_dtype());
  grads.part = grads.kept.view().slice(0, part.begin - kept.begin, part.end - kept.begin);
  bytes_ += grads.kept.view().bytes();
  if (!spread() && !unit.frozen()) unit.bind_grads(grads.kept.view());
  units_.push_back(std::move(grads));
}

void GradBuffers::restart(int64_t step) {
  step_ = step;
  micro_batch_ = 0;
  for (UnitGrads& grads : units_) {
    grads.unit->restart_grads();
    grads.started = false;
    grads.finished = grads.unit->frozen();
  }
}

void GradBuffers::begin(bool last) {
  last_ = last;
  ++micro_batch_;
  for (UnitGrads& grads : units_) grads.expected = 0;
}

void GradBuffers::expect(const ParameterUnit& unit) { ++of(unit).expected; }

void GradBuffers::bind(ParameterUnit& unit) {
  if (!spread() || unit.frozen()) return;
  UnitGrads& grads = of(unit);
  const bool inside = &grads != &units_.front();
  grads.buffer = inside ? &next_buffer(unit) : &root_;
  grads.buffer->bound = true;
  stalls_.wait(grads.buffer->done);
  unit.bind_grads(grads.buffer->memory.view().slice(0, 0, unit.flat_numel()));
  unit.restart_grads();
}

GradBuffers::Buffer& GradBuffers::next_buffer(const ParameterUnit& unit) {
  for (size_t tries = 0; tries < kRing; ++tries) {
    Buffer& buffer = ring_[next_++ % kRing];
    if (!buffer.bound) return buffer;
  }
  throw Error(Code::kFailedPrecondition,
              fmt::format("unit {} runs inside {} others; gradients are kept for {} nested units",
                          unit.name(), kRing, kRing));
}

void GradBuffers::reduce(ParameterUnit& unit) {
  if (unit.frozen()) return;
  UnitGrads& grads = of(unit);
  --grads.expected;
  if (spread()) {
    unit.finish_grads(runtime_.compute());
    const View full = unit.grads();
    unit.bind_grads({});
    reduce_to_kept(grads, full);
  }
  if (last_ && grads.expected == 0) reduce_to_world(grads);
}

void GradBuffers::finish() {
  for (UnitGrads& grads : units_) {
    if (!grads.finished) reduce_to_world(grads);
  }
  for (const UnitGrads& grads : units_) stalls_.wait(grads.done);
}

void GradBuffers::reduce_to_kept(UnitGrads& grads, const View& full) {
  Stream& stream = *groups_.grads().stream;
  const std::vector<Event> after = {runtime_.compute().record()};
  const ShardLevels& levels = groups_.levels();
  View part = reduce_scatter(grads, {groups_.grads().params, 0, levels.params}, full, 0, after);
  const int64_t first = groups_.layout().params(full.numel()).begin;
  part = reduce_scatter(grads, {groups_.grads().grads, levels.params, levels.grads}, part, first,
                        after);
  kernels::copy(stream, part, {grads.kept.view(), grads.started});
  grads.started = true;
  grads.buffer->done = stream.record();
  grads.buffer->bound = false;
  maybe_serialise(grads.buffer->done);
}

void GradBuffers::reduce_to_world(UnitGrads& grads) {
  Stream& compute = runtime_.compute();
  if (!spread()) grads.unit->finish_grads(compute);
  grads.finished = true;
  if (groups_.world() == 1) return;
  const std::vector<Event> after = {compute.record()};
  if (spread() && !grads.started) {
    groups_.grads().stream->wait(after.front());
    kernels::fill(*groups_.grads().stream, grads.kept.view(), 0.0);
  }
  const ShardLevels& levels = groups_.levels();
  const int64_t flat = grads.unit->flat_numel();
  reduce_scatter(grads, {groups_.grads().optimizer, levels.grads, levels.optimizer},
                 grads.kept.view(), spread() ? groups_.layout().grads(flat).begin : 0, after);
  if (Communicator* group = groups_.grads().copies) all_reduce(*group, grads.part, after);
  grads.done = groups_.grads().stream->record();
  maybe_serialise(grads.done);
}

CodedReduction GradBuffers::coding(const UnitGrads& grads, const Hop& hop, int64_t first) const {
  const ZeroWires& wires = options_.wires;
  CodedReduction how{.segments = grads.segments,
                     .first = first,
                     .intra = wires.grads_intra,
                     .inter = wires.grads_inter,
                     .as_is = grads.unit->dtype(),
                     .hadamard = wires.hadamard,
                     .rounding = nullptr,
                     .chunks = wires.chunks,
                     .grid = wires.grid};
  if (wires.stochastic) {
    const uint64_t when =
        mix_hash(mix_hash(static_cast<uint64_t>(step_), static_cast<uint64_t>(micro_batch_)),
                 static_cast<uint64_t>(hop.outer));
    how.rounding = std::make_shared<RngKey>(
        RngKey{options_.seed, mix_hash(hash_name(grads.unit->name()), when), 0});
  }
  return how;
}

View GradBuffers::reduce_scatter(const UnitGrads& grads, const Hop& hop, const View& in,
                                 int64_t first, const std::vector<Event>& after) {
  if (hop.group == nullptr) return in;
  Communicator& group = *hop.group;
  const int64_t n = in.numel() / group.size();
  const View out = in.slice(0, group.rank() * n, (group.rank() + 1) * n);
  if (options_.wires.codes_grads(groups_.topology(), hop.inner, hop.outer)) {
    group.coded_reduce_scatter(in, out, coding(grads, hop, first), after);
    return out;
  }
  if (!wire_) {
    group.reduce_scatter(in, out, ReduceOp::kSum, after);
    return out;
  }
  for (const Event& event : after) group.stream().wait(event);
  const View rounded = wire_.view().slice(0, 0, in.numel());
  kernels::copy(group.stream(), in, {rounded});
  group.reduce_scatter(rounded, out, ReduceOp::kSum);
  return out;
}

void GradBuffers::all_reduce(Communicator& group, const View& inout,
                             const std::vector<Event>& after) {
  if (!wire_) {
    group.all_reduce(inout, ReduceOp::kSum, after);
    return;
  }
  for (const Event& event : after) group.stream().wait(event);
  const View rounded = wire_.view().slice(0, 0, inout.numel());
  kernels::copy(group.stream(), inout, {rounded});
  group.all_reduce(rounded, ReduceOp::kSum);
  kernels::copy(group.stream(), rounded, {inout});
}

int64_t GradBuffers::passing_bytes() const {
  const auto bytes = [](const Tensor& tensor) { return tensor ? tensor.view().bytes() : 0; };
  int64_t total = bytes(root_.memory) + bytes(wire_);
  for (const Buffer& buffer : ring_) total += bytes(buffer.memory);
  return total;
}

void GradBuffers::maybe_serialise(const Event& event) {
  if (!options_.overlap) stalls_.wait(event);
}

}  // namespace zpp

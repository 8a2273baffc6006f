#include "comm/communicator.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/dispatch.h"

namespace zpp {
namespace {

std::string call_name(const Communicator& group, const char* call) {
  return fmt::format("{} of {} (rank {} of {})", call, group.name(), group.rank(), group.size());
}

[[noreturn]] void refuse(const std::string& call, const std::string& why) {
  throw Error(Code::kInvalidArgument, fmt::format("{}: {}", call, why));
}

void check_view(const std::string& call, const Stream& stream, const char* name, const View& view) {
  kernels::check_args(call, stream, {{name, view}});
  kernels::check_contiguous(call, {{name, view}});
  if (view.data == nullptr && view.numel() > 0) refuse(call, fmt::format("{} is absent", name));
}

const std::byte* begin_of(const View& view) { return static_cast<const std::byte*>(view.data); }

bool overlap(const View& a, const View& b) {
  return a.bytes() > 0 && b.bytes() > 0 && begin_of(a) < begin_of(b) + b.bytes() &&
         begin_of(b) < begin_of(a) + a.bytes();
}

/// `whole` holds `parts` times what `part` does. They may overlap only where `part` is its own
/// place in `whole`; not at all if place < 0.
void check_parts(const std::string& call, const char* whole_name, const View& whole,
                 const char* part_name, const View& part, int parts, int place) {
  if (whole.numel() != part.numel() * parts) {
    refuse(call, fmt::format("{} has {} elements but should have {}, {} times those of {}",
                             whole_name, whole.numel(), part.numel() * parts, parts, part_name));
  }
  if (!overlap(whole, part)) return;
  const bool in_place = place >= 0 && whole.dtype == part.dtype &&
                        begin_of(part) == begin_of(whole) + place * part.bytes();
  if (!in_place) refuse(call, fmt::format("{} and {} overlap", whole_name, part_name));
}

void check_same_dtype(const std::string& call, const View& in, const View& out) {
  if (in.dtype == out.dtype) return;
  refuse(call, fmt::format("in is {} but out is {}", to_string(in.dtype), to_string(out.dtype)));
}

}  // namespace

Communicator::Work Communicator::enqueue(const std::vector<Event>& after,
                                         const std::function<void()>& body) {
  for (const Event& event : after) stream().wait(event);
  body();
  return Work(stream().record());
}

Communicator::Work Communicator::all_gather(const View& in, const View& out,
                                            const std::vector<Event>& after) {
  const std::string call = call_name(*this, "all_gather");
  check_view(call, stream(), "in", in);
  check_view(call, stream(), "out", out);
  check_same_dtype(call, in, out);
  check_parts(call, "out", out, "in", in, size(), rank());
  return enqueue(after, [&] { do_all_gather(in, out); });
}

Communicator::Work Communicator::all_gather_parts(const View& in, const View& out,
                                                  const std::vector<int64_t>& ends,
                                                  const std::vector<Event>& after) {
  const std::string call = call_name(*this, "all_gather_parts");
  check_view(call, stream(), "in", in);
  check_view(call, stream(), "out", out);
  check_same_dtype(call, in, out);
  if (static_cast<int>(ends.size()) != size() || ends.front() < 0 || ends.back() != out.numel() ||
      !std::is_sorted(ends.begin(), ends.end())) {
    refuse(call, fmt::format("ends are {} numbers up to {}, but should be {} that ascend to the {} "
                             "elements of out",
                             ends.size(), ends.empty() ? 0 : ends.back(), size(), out.numel()));
  }
  const int64_t begin = rank() == 0 ? 0 : ends[static_cast<size_t>(rank()) - 1];
  const View own = out.slice(0, begin, ends[static_cast<size_t>(rank())]);
  if (in.numel() != own.numel()) {
    refuse(call, fmt::format("in has {} elements, its part of out {}", in.numel(), own.numel()));
  }
  if (in.data != own.data && overlap(in, out)) refuse(call, "in and out overlap");
  return enqueue(after, [&] { do_all_gather_parts(in, out, ends); });
}

Communicator::Work Communicator::coded_reduce_scatter(const View& in, const View& out,
                                                      const CodedReduction& how,
                                                      const std::vector<Event>& after) {
  const std::string call = call_name(*this, "coded_reduce_scatter");
  check_view(call, stream(), "in", in);
  check_view(call, stream(), "out", out);
  kernels::check_dtype(call, {"in", in}, {DType::kF32});
  check_same_dtype(call, in, out);
  check_parts(call, "in", in, "out", out, size(), rank());
  if (how.segments == nullptr) refuse(call, "how.segments is null");
  if (how.grid < 1 || how.chunks < 1) {
    refuse(call, fmt::format("grid is {} and chunks {}, but both should be at least 1", how.grid,
                             how.chunks));
  }
  for (const WireFormat& format : {how.intra, how.inter}) {
    if (!format.coded() || how.grid % format.block == 0) continue;
    refuse(call, fmt::format("blocks of {} do not fit a grid of {}", format.block, how.grid));
  }
  if (how.first % how.grid != 0 || out.numel() % how.grid != 0) {
    refuse(call, fmt::format("parts of {} elements from {} on are not cut on a grid of {}",
                             out.numel(), how.first, how.grid));
  }
  return enqueue(after, [&] { do_coded_reduce_scatter(in, out, how); });
}

Communicator::Work Communicator::reduce_scatter(const View& in, const View& out, ReduceOp op,
                                                const std::vector<Event>& after) {
  const std::string call = call_name(*this, "reduce_scatter");
  check_view(call, stream(), "in", in);
  check_view(call, stream(), "out", out);
  kernels::check_dtype(call, {"in", in}, {DType::kF32, DType::kBF16, DType::kF64});
  if (in.dtype != DType::kBF16 || out.dtype != DType::kF32) check_same_dtype(call, in, out);
  check_parts(call, "in", in, "out", out, size(), rank());
  return enqueue(after, [&] { do_reduce_scatter(in, out, op); });
}

Communicator::Work Communicator::all_reduce(const View& inout, ReduceOp op,
                                            const std::vector<Event>& after) {
  const std::string call = call_name(*this, "all_reduce");
  check_view(call, stream(), "inout", inout);
  kernels::check_dtype(call, {"inout", inout},
                       {DType::kF32, DType::kBF16, DType::kF64, DType::kI32, DType::kI64});
  if (op == ReduceOp::kAvg && (inout.dtype == DType::kI32 || inout.dtype == DType::kI64)) {
    refuse(call, "integers have no mean here; take their sum");
  }
  return enqueue(after, [&] { do_all_reduce(inout, op); });
}

Communicator::Work Communicator::broadcast(const View& inout, int root,
                                           const std::vector<Event>& after) {
  const std::string call = call_name(*this, "broadcast");
  check_view(call, stream(), "inout", inout);
  if (root < 0 || root >= size()) refuse(call, fmt::format("root is {}", root));
  return enqueue(after, [&] { do_broadcast(inout, root); });
}

Communicator::Work Communicator::all_to_all(const View& in, const View& out,
                                            const std::vector<Event>& after) {
  const std::string call = call_name(*this, "all_to_all");
  check_view(call, stream(), "in", in);
  check_view(call, stream(), "out", out);
  check_same_dtype(call, in, out);
  if (in.numel() != out.numel() || in.numel() % size() != 0) {
    refuse(call, fmt::format("in has {} elements and out {}; both should have the same multiple "
                             "of {}",
                             in.numel(), out.numel(), size()));
  }
  if (overlap(in, out)) refuse(call, "in and out overlap");
  return enqueue(after, [&] { do_all_to_all(in, out); });
}

Communicator::Work Communicator::barrier(const std::vector<Event>& after) {
  return enqueue(after, [&] { do_barrier(); });
}

}  // namespace zpp

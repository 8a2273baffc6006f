#include "tools/bench/coded_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "comm/packet.h"
#include "core/human.h"
#include "kernels/elementwise.h"
#include "tools/bench/collective_timer.h"

namespace zpp {
namespace {

// Blocks as training has them by default; parts are cut on multiples of all of them.
constexpr int64_t kWeightBlock = 2048, kIntraBlock = 512, kInterBlock = 128;
constexpr int64_t kGrid = 2048;
constexpr int64_t kChunks = 4;

/// Bits between ranks of a node and between nodes.
struct Bits {
  int intra = 0, inter = 0;
};

std::string wire_name(int bits) { return bits == 0 ? "16bit" : fmt::format("int{}", bits); }

/// f32 or bf16.
double value_at(const View& view, int64_t i) {
  return view.dtype == DType::kBF16 ? to_f32(view.as<bf16>()[i]) : view.as<float>()[i];
}

/// A buffer of one size.
class Bench {
 public:
  Bench(Runtime& runtime, Communicator& world, const Topology& topology, const Ledger& ledger,
        double seconds, const Print& print, int64_t bytes)
      : stream_(runtime.compute()),
        world_(world),
        topology_(topology),
        ledger_(ledger),
        seconds_(seconds),
        print_(print),
        timer_(runtime, world),
        part_((bytes / 2 / world.size() + kGrid - 1) / kGrid * kGrid),
        n_(part_ * world.size()),
        segments_(std::make_shared<Segments>(Segments{{0, n_, true}})),
        values_(runtime.tensor({n_}, DType::kBF16)),
        own_(runtime.tensor({part_}, DType::kBF16)),
        packed_(runtime.tensor({n_ + n_ / 256}, DType::kU8)),  // 8 bits and scales
        grads_(runtime.tensor({n_}, DType::kF32)),
        mean_(runtime.tensor({part_}, DType::kF32)),
        found_(runtime.tensor({part_}, DType::kF32)),
        sums_(runtime.tensor({4}, DType::kF64)) {}

  void run() {
    kernels::fill_normal(stream_, own_.view(), 0.0f, 0.02f,
                         {1, static_cast<uint64_t>(world_.rank()), 0});
    plain_s_ = 0;
    for (const int bits : {0, 8, 4}) gather(bits);
    make_gradients();
    world_.reduce_scatter(grads_.view(), mean_.view(), ReduceOp::kAvg);
    make_gradients();  // the sum may have overwritten them
    plain_s_ = 0;
    for (const Bits& bits : ways()) reduce_scatter(bits);
  }

 private:
  bool inside() const { return topology_.group_size(1) > 1; }
  bool between() const { return topology_.levels() > 1; }

  std::vector<Bits> ways() const {
    if (inside() && between()) return {{0, 0}, {8, 8}, {8, 4}, {4, 4}};
    return {{0, 0}, {8, 8}, {4, 4}};
  }

  void gather(int bits) {
    const View all = values_.view();
    const auto cells =
        std::make_shared<PackedCells>(*segments_, 0, n_, world_.size(),
                                      WireFormat{bits, bits == 0 ? 0 : kWeightBlock}, DType::kBF16);
    const auto start = [&] {
      if (bits == 0) return world_.all_gather(own_.view(), all).done();
      const View packed = packed_.view().slice(0, 0, cells->bytes());
      const int me = world_.rank();
      encode_cells(stream_, cells, me, 1, own_.view(), packed);
      world_.all_gather_parts(packed.slice(0, cells->offset(me), cells->offset(me + 1)), packed,
                              cells->ends(world_.size()));
      decode_cells(stream_, cells, packed, all);
      return stream_.record();
    };
    report("all-gather", wire_name(bits), start, [&] {
      return error(all.slice(0, world_.rank() * part_, (world_.rank() + 1) * part_), own_.view());
    });
  }

  void make_gradients() {
    kernels::fill_normal(stream_, grads_.view(), 0.0f, 1.0f,
                         {2, static_cast<uint64_t>(world_.rank()), 0});
    kernels::fill_normal(stream_, values_.view(), 0.0f, 1.0f, {3, 0, 0});
    kernels::copy(stream_, values_.view(), {grads_.view(), true}, 0.5);
    stream_.synchronize();
  }

  void reduce_scatter(const Bits& bits) {
    const float scale = 1.0f / static_cast<float>(world_.size());
    const auto start = [&] {
      if (bits.intra != 0) {
        return world_
            .coded_reduce_scatter(grads_.view(), found_.view(),
                                  {.segments = segments_,
                                   .first = 0,
                                   .intra = {bits.intra, kIntraBlock},
                                   .inter = {bits.inter, kInterBlock},
                                   .as_is = DType::kBF16,
                                   .hadamard = false,
                                   .rounding = nullptr,
                                   .chunks = kChunks,
                                   .grid = kGrid,
                                   .scale = scale})
            .done();
      }
      kernels::copy(stream_, grads_.view(), {values_.view()});
      return world_.reduce_scatter(values_.view(), found_.view(), ReduceOp::kAvg).done();
    };
    std::string wire = wire_name(between() ? bits.inter : bits.intra);
    if (inside() && between()) wire = fmt::format("{}, {}", wire_name(bits.intra), wire);
    report("reduce-scatter", wire, start, [&] { return error(found_.view(), mean_.view()); });
  }

  void report(const std::string& name, const std::string& wire, const std::function<Event()>& start,
              const std::function<double()>& wrong) {
    const std::vector<int64_t> before = ledger_.sent_bytes();
    start().synchronize();
    const std::vector<int64_t> after = ledger_.sent_bytes();
    double near = 0, far = 0;
    for (size_t c = 1; c < after.size(); ++c) {
      (c == 1 ? near : far) += static_cast<double>(after[c] - before[c]);
    }
    const double seconds = timer_.best_seconds(start, seconds_);
    if (plain_s_ == 0) plain_s_ = seconds;
    const double rate = 2.0 * static_cast<double>(n_) / seconds;
    const double ranks = world_.size();
    const double relative = wrong();
    sum(near, far);
    print_(fmt::format("{:<15} {:<12} {:>10} {:>9.1f} us {:>9.2f} {:>8.2f} {:>13} {:>11} {:>9.5f}",
                       name, wire, human_bytes(2 * n_), seconds * 1e6, rate / 1e9,
                       plain_s_ / seconds, human_bytes(std::llround(far / ranks * per_node())),
                       human_bytes(std::llround(near / ranks)), relative));
  }

  int per_node() const { return between() ? topology_.group_size(1) : 1; }

  /// Both become the sums over all ranks.
  void sum(double& a, double& b) {
    const View both = sums_.view().slice(0, 0, 2);
    both.as<double>()[0] = a;
    both.as<double>()[1] = b;
    world_.all_reduce(both, ReduceOp::kSum).synchronize();
    a = both.as<double>()[0];
    b = both.as<double>()[1];
  }

  /// Of this rank's part and those of all others.
  double error(const View& found, const View& wanted) {
    double wrong = 0, all = 0;
    for (int64_t i = 0; i < part_; ++i) {
      const double value = value_at(wanted, i);
      const double difference = value_at(found, i) - value;
      wrong += difference * difference;
      all += value * value;
    }
    sum(wrong, all);
    return std::sqrt(wrong / all);
  }

  Stream& stream_;
  Communicator& world_;
  const Topology& topology_;
  const Ledger& ledger_;
  const double seconds_;
  const Print& print_;
  const CollectiveTimer timer_;
  const int64_t part_, n_;  // values of a rank, of the buffer
  const std::shared_ptr<const Segments> segments_;
  const Tensor values_, own_, packed_, grads_, mean_, found_, sums_;
  double plain_s_ = 0;
};

}  // namespace

void bench_coded(Runtime& runtime, Communicator& world, const Topology& topology,
                 const Ledger& ledger, const CodedBench& options, const Print& print) {
  print("");
  print(fmt::format("{:<15} {:<12} {:>10} {:>12} {:>9} {:>8} {:>13} {:>11} {:>9}", "collective",
                    "wire", "buffer", "time", "eff GB/s", "x 16bit", "between nodes", "inside",
                    "error"));
  for (const int64_t bytes : options.bytes) {
    Bench(runtime, world, topology, ledger, options.seconds, print, bytes).run();
  }
  print(
      fmt::format("eff: the buffer in 16 bits / time, coding included; between nodes: sent by a "
                  "node, inside: by "
                  "a rank; error: rms, relative; blocks: {} for weights, {} and {} for gradients",
                  kWeightBlock, kIntraBlock, kInterBlock));
}

}  // namespace zpp

#include "kernels/cpu/gemm_packed.h"

#include <immintrin.h>

#include <algorithm>

#include "kernels/cpu/gemm.h"

namespace zpp::kernels::cpu {

namespace {

// Terms of a sum between two visits of c: a panel of b (24 KiB in f32) then stays in the first-level
// cache.
constexpr int64_t kMaxDepth = 384;
// Of the shared operand at a time: it should stay in the last-level cache.
constexpr int64_t kSlabBytes = 16 << 20;
// Of the panels of a that all panels of b meet in turn: they stay in the second-level cache, so that
// the last level, which other machines on the same processor may be using, is little asked.
constexpr int64_t kPieceBytes = 300 << 10;

// Outputs from here on do not fit the caches of a core.
constexpr int64_t kBypassBytes = 4 << 20;

/// One operand as panels.
struct Side {
  int64_t lines, step;
  int64_t panels() const { return ceil_div(lines, step); }
};

/// How a product is cut up, and its loops. Memory: the shared slab, then the sums, then a piece for
/// each slot.
class Packed {
 public:
  Packed(const GemmProblem& problem, const GemmSimd& simd, int threads) : p_(problem), simd_(simd) {
    const GemmProblem& p = problem;
    element_ = p.dtype == DType::kF64 ? 8 : 4;
    const Side rows{p.m, simd.row_step};
    const Side cols{p.n, p.dtype == DType::kF64 ? simd.col_step / 2 : simd.col_step};
    share_rows_ = p.m <= p.n;
    shared_ = share_rows_ ? rows : cols;
    own_ = share_rows_ ? cols : rows;

    depths_ = std::max<int64_t>(1, ceil_div(p.k, kMaxDepth));
    depth_ = ceil_div(ceil_div(p.k, depths_), 8) * 8;
    depths_ = std::max<int64_t>(1, ceil_div(p.k, std::max<int64_t>(depth_, 1)));
    p_.bypass_caches = depths_ == 1 && p.m * p.n * size_of(p.c_dtype) >= kBypassBytes;
    const int64_t depth_bytes = shared_.panels() * panel_bytes(shared_);
    slab_ = std::clamp<int64_t>(kSlabBytes / std::max<int64_t>(depth_bytes, 1), 1, depths_);

    // A few tiles for each thread; where the own side has too few lines for that, the shared side
    // is cut as well.
    const int64_t wanted = threads == 1 ? 1 : 4 * threads;
    tile_panels_ = std::clamp<int64_t>(own_.panels() / wanted, 1, most_tile_panels());
    tiles_ = ceil_div(own_.panels(), tile_panels_);
    part_panels_ = std::max<int64_t>(
        ceil_div(shared_.panels(), std::max<int64_t>(1, wanted / tiles_)), kMinPartPanels);
    parts_ = ceil_div(shared_.panels(), part_panels_);
  }

  int64_t bytes(int64_t slots) const { return slab_bytes() + sums_bytes() + slots * piece_bytes(); }

  /// `loop(items, fn(item, slot))` runs the items, on one thread or many.
  template <class Loop>
  void run(std::byte* memory, const Loop& loop) const {
    std::byte* const slab = memory;
    std::byte* const sums = slab + slab_bytes();
    std::byte* const pieces = sums + sums_bytes();
    for (int64_t first = 0; first < depths_; first += slab_) {
      const int64_t count = std::min(slab_, depths_ - first);
      const int64_t groups = ceil_div(shared_.panels(), kPackGroup);
      loop(groups * count, [&](int64_t item, int64_t) {
        const int64_t d = item / groups, begin = item % groups * kPackGroup;
        const int64_t end = std::min(begin + kPackGroup, shared_.panels());
        for (int64_t i = begin; i < end; ++i) {
          pack(share_rows_, i * shared_.step, depth(first + d), shared_panel(slab, d, i));
        }
      });
      loop(tiles_ * parts_, [&](int64_t item, int64_t slot) {
        const Range own = range(item / parts_, tile_panels_, own_.panels());
        const Range shared = range(item % parts_, part_panels_, shared_.panels());
        std::byte* const piece = pieces + slot * piece_bytes();
        if (share_rows_) {
          columns(own, shared, first, count, slab, piece, sums);
        } else {
          rows(own, shared, first, count, slab, piece, sums);
        }
        if (p_.bypass_caches) _mm_sfence();  // before whoever reads c
      });
    }
  }

 private:
  static constexpr int64_t kMinPartPanels = 8;
  static constexpr int64_t kPackGroup = 4;
  static constexpr int64_t kMostColumnPanels = 8;

  struct Range {
    int64_t begin, end;
  };
  static Range range(int64_t index, int64_t size, int64_t total) {
    return {index * size, std::min((index + 1) * size, total)};
  }

  int64_t panel_bytes(const Side& side) const {
    return panel_elements(side.step, depth_) * element_;
  }
  int64_t most_tile_panels() const {
    return share_rows_
               ? kMostColumnPanels
               : std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(panel_bytes(own_), 1));
  }
  int64_t slab_bytes() const { return slab_ * shared_.panels() * panel_bytes(shared_); }
  int64_t sums_bytes() const {
    const bool narrow = size_of(p_.c_dtype) < element_;
    return narrow && depths_ > 1 ? ceil_div(p_.m * p_.n * element_, 64) * 64 : 0;
  }
  int64_t piece_bytes() const { return panel_bytes(own_) * tile_panels_; }
  std::byte* shared_panel(std::byte* slab, int64_t d, int64_t panel) const {
    return slab + (d * shared_.panels() + panel) * panel_bytes(shared_);
  }
  GemmDepth depth(int64_t index) const {
    return {index * depth_, std::min((index + 1) * depth_, p_.k)};
  }
  void pack(bool rows, int64_t line, GemmDepth d, void* to) const {
    (rows ? simd_.pack_rows : simd_.pack_cols)(p_, line, d, to);
  }

  // A tile's panels of b, against all of a, as many panels of a at a time as stay in the cache.
  void columns(Range own, Range shared, int64_t first, int64_t count, std::byte* slab,
               std::byte* piece, std::byte* sums) const {
    const int64_t step = std::max<int64_t>(1, kPieceBytes / panel_bytes(shared_));
    for (int64_t d = 0; d < count; ++d) {
      for (int64_t n = own.begin; n < own.end; ++n) {
        pack(false, n * own_.step, depth(first + d), piece + (n - own.begin) * panel_bytes(own_));
      }
      for (int64_t begin = shared.begin; begin < shared.end; begin += step) {
        const int64_t end = std::min(begin + step, shared.end);
        for (int64_t n = own.begin; n < own.end; ++n) {
          for (int64_t m = begin; m < end; ++m) {
            simd_.block(p_, m * shared_.step, n * own_.step, depth(first + d),
                        shared_panel(slab, d, m), piece + (n - own.begin) * panel_bytes(own_),
                        sums);
          }
        }
      }
    }
  }

  // A piece of a, against all panels of b.
  void rows(Range own, Range shared, int64_t first, int64_t count, std::byte* slab,
            std::byte* piece, std::byte* sums) const {
    for (int64_t d = 0; d < count; ++d) {
      for (int64_t m = own.begin; m < own.end; ++m) {
        pack(true, m * own_.step, depth(first + d), piece + (m - own.begin) * panel_bytes(own_));
      }
      for (int64_t n = shared.begin; n < shared.end; ++n) {
        for (int64_t m = own.begin; m < own.end; ++m) {
          simd_.block(p_, m * own_.step, n * shared_.step, depth(first + d),
                      piece + (m - own.begin) * panel_bytes(own_), shared_panel(slab, d, n), sums);
        }
      }
    }
  }

  GemmProblem p_;
  const GemmSimd& simd_;
  int64_t element_;
  bool share_rows_;
  Side shared_, own_;
  int64_t depth_, depths_;  // terms of one, how many
  int64_t slab_;            // depths packed at a time
  int64_t tile_panels_, tiles_, part_panels_, parts_;
};

/// Whether a product is too small to be worth waking other threads twice.
bool is_small(const GemmProblem& p) { return p.m * p.n * p.k < int64_t{1} << 18; }

}  // namespace

void multiply_packed(Workers& workers, const GemmBatch& batch, const GemmSimd& simd,
                     ScratchMemory& scratch) {
  if (!is_small(batch.first)) {
    for (int64_t i = 0; i < batch.count; ++i) {
      const GemmProblem p = batch.at(i);
      const Packed product(p, simd, workers.threads());
      product.run(scratch.at_least(product.bytes(workers.threads())),
                  [&](int64_t items, const auto& fn) { run_in_slots(workers, items, fn); });
    }
    return;
  }
  const int64_t bytes = ceil_div(Packed(batch.first, simd, 1).bytes(1), 64) * 64;
  const int64_t slots = std::min<int64_t>(batch.count, workers.threads());
  std::byte* const memory = scratch.at_least(bytes * slots);
  run_in_slots(workers, batch.count, [&](int64_t i, int64_t slot) {
    const GemmProblem p = batch.at(i);
    Packed(p, simd, 1).run(memory + slot * bytes, [](int64_t items, const auto& fn) {
      for (int64_t item = 0; item < items; ++item) fn(item, 0);
    });
  });
}

}  // namespace zpp::kernels::cpu

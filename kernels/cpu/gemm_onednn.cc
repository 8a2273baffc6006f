#include "kernels/cpu/gemm_onednn.h"

#include <fmt/format.h>
#include <omp.h>

#include <compare>
#include <cstring>
#include <deque>
#include <map>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <vector>

#include "kernels/cpu/gemm.h"
#include "kernels/cpu/slots.h"

namespace zpp::kernels::cpu {

namespace {

/// [0, n) in `parts` equal pieces, rounded up to whole steps.
int64_t piece(int64_t n, int64_t parts, int64_t step) {
  return ceil_div(ceil_div(n, parts), step) * step;
}

/// Rows [m0, m1) and columns [n0, n1) of the product as a product of its own.
GemmProblem slice(const GemmProblem& p, const GemmTile& t) {
  GemmProblem part = p;
  part.m = t.m1 - t.m0;
  part.n = t.n1 - t.n0;
  part.a = offset(p.a, t.m0 * p.a_m, p.dtype);
  part.b = offset(p.b, t.n0 * p.b_n, p.dtype);
  part.c = offset(p.c, t.m0 * p.c_m + t.n0, p.c_dtype);
  if (p.bias) part.bias = offset(p.bias, t.n0, p.bias_dtype);
  return part;
}

/// A grid of tiles over a batch of products.
struct Grid {
  int64_t count, m, n, tile_m, tile_n;

  int64_t per_matrix() const { return ceil_div(m, tile_m) * ceil_div(n, tile_n); }
  int64_t size() const { return count * per_matrix(); }
  int64_t matrix(int64_t index) const { return index / per_matrix(); }
  GemmTile tile(int64_t index) const {
    const int64_t across = ceil_div(n, tile_n);
    const int64_t at = index % per_matrix();
    const int64_t m0 = at / across * tile_m, n0 = at % across * tile_n;
    return {m0, std::min(m, m0 + tile_m), n0, std::min(n, n0 + tile_n)};
  }
};

// Slices of the larger dimension: the other operand is packed again for each of them, so there are
// not more than balance needs, and none so small that this would dominate.
Grid library_grid(const GemmBatch& batch, int threads) {
  constexpr int64_t kStep = 48;  // whole register blocks for 6- and 16-wide kernels
  constexpr int64_t kMinFlops = 1 << 22;
  const GemmProblem& p = batch.first;
  const int64_t flops = 2 * p.m * p.n * p.k;
  const int64_t useful = std::max<int64_t>(1, flops / kMinFlops);
  const int64_t parts = std::min(ceil_div(2 * threads, batch.count), useful);
  if (threads == 1 || parts <= 1) return {batch.count, p.m, p.n, p.m, p.n};
  if (p.n >= p.m) return {batch.count, p.m, p.n, p.m, piece(p.n, parts, kStep)};
  return {batch.count, p.m, p.n, piece(p.m, parts, kStep), p.n};
}

/// Everything that a compiled product depends on.
struct Key {
  int64_t m, n, k, a_m, a_k, b_k, b_n, c_m;
  DType dtype, c_dtype, bias_dtype;
  bool bias, accumulate;
  auto operator<=>(const Key&) const = default;
};

Key key_of(const GemmProblem& p) {
  return {p.m,         p.n,   p.k,     p.a_m,     p.a_k,        p.b_k,
          p.b_n,       p.c_m, p.dtype, p.c_dtype, p.bias_dtype, p.bias != nullptr,
          p.accumulate};
}

dnnl::memory::data_type type_of(DType dtype) {
  return dtype == DType::kBF16 ? dnnl::memory::data_type::bf16 : dnnl::memory::data_type::f32;
}

/// Memory objects of one slot: their handles are set for each run.
struct Arguments {
  dnnl::memory a, b, bias, c, scratch;
};

}  // namespace

struct OnednnGemm::Compiled {
  dnnl::matmul product;
  mutable std::vector<Arguments> slots;
  int64_t scratch_bytes = 0;
};

struct OnednnGemm::State {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  std::map<Key, std::optional<Compiled>> products;
  std::deque<dnnl::stream> streams;         // by slot
  std::deque<ScratchMemory> scratch;        // by slot
  std::vector<std::byte*> scratch_pointer;  // by slot
  int64_t scratch_bytes = 0;

  void provide(int slots, int64_t bytes) {
    while (streams.size() < static_cast<size_t>(slots)) {
      streams.emplace_back(engine);
      scratch.emplace_back();
    }
    if (bytes <= scratch_bytes && scratch_pointer.size() >= static_cast<size_t>(slots)) return;
    scratch_bytes = std::max(scratch_bytes, bytes);
    scratch_pointer.clear();
    for (ScratchMemory& memory : scratch) scratch_pointer.push_back(memory.at_least(scratch_bytes));
  }

  std::optional<Compiled> compile(const GemmProblem& p, int slots) const;
};

std::optional<OnednnGemm::Compiled> OnednnGemm::State::compile(const GemmProblem& p,
                                                               int slots) const {
  using Desc = dnnl::memory::desc;
  using Dims = dnnl::memory::dims;
  const Desc a(Dims{p.m, p.k}, type_of(p.dtype), Dims{p.a_m, p.a_k});
  const Desc b(Dims{p.k, p.n}, type_of(p.dtype), Dims{p.b_k, p.b_n});
  const Desc c(Dims{p.m, p.n}, type_of(p.c_dtype), Dims{p.c_m, 1});
  const Desc bias = p.bias ? Desc(Dims{1, p.n}, type_of(p.bias_dtype), Dims{p.n, 1}) : Desc();
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (p.accumulate) {
    dnnl::post_ops ops;
    ops.append_sum(1.0f);
    attributes.set_post_ops(ops);
  }
  const dnnl::matmul::desc desc =
      p.bias ? dnnl::matmul::desc(a, b, bias, c) : dnnl::matmul::desc(a, b, c);
  const dnnl::matmul::primitive_desc found(desc, attributes, engine);
  if (std::strncmp(found.impl_info_str(), "ref", 3) == 0) return std::nullopt;
  Compiled compiled{
      dnnl::matmul(found), {}, static_cast<int64_t>(found.scratchpad_desc().get_size())};
  const auto unbound = [this](const Desc& d) { return dnnl::memory(d, engine, nullptr); };
  for (int slot = 0; slot < slots; ++slot) {
    compiled.slots.push_back({unbound(a), unbound(b), p.bias ? unbound(bias) : dnnl::memory(),
                              unbound(c), unbound(found.scratchpad_desc())});
  }
  return compiled;
}

OnednnGemm::OnednnGemm() : state_(std::make_unique<State>()) {}
OnednnGemm::~OnednnGemm() = default;

OnednnGemm::Compiled* OnednnGemm::compile(const GemmProblem& p, int slots) {
  auto [it, is_new] = state_->products.try_emplace(key_of(p));
  if (is_new) {
    omp_set_num_threads(1);
    try {
      it->second = state_->compile(p, slots);
    } catch (const dnnl::error& error) {
      state_->products.erase(it);
      throw Error(Code::kInternal,
                  fmt::format("gemm: oneDNN cannot compile ({}, {}) x ({}, {}) in {}: {}", p.m, p.k,
                              p.k, p.n, to_string(p.dtype), error.what()));
    }
  }
  if (!it->second) return nullptr;
  state_->provide(slots, it->second->scratch_bytes);
  return &*it->second;
}

void OnednnGemm::run(const Compiled& compiled, const GemmProblem& p, int64_t slot) const {
  omp_set_num_threads(1);
  const size_t index = static_cast<size_t>(slot);
  Arguments& with = compiled.slots[index];
  // The library takes inputs by pointers to non-const.
  with.a.set_data_handle(const_cast<void*>(p.a));
  with.b.set_data_handle(const_cast<void*>(p.b));
  with.c.set_data_handle(p.c);
  with.scratch.set_data_handle(state_->scratch_pointer[index]);
  std::unordered_map<int, dnnl::memory> arguments{{DNNL_ARG_SRC, with.a},
                                                  {DNNL_ARG_WEIGHTS, with.b},
                                                  {DNNL_ARG_DST, with.c},
                                                  {DNNL_ARG_SCRATCHPAD, with.scratch}};
  if (p.bias) {
    with.bias.set_data_handle(const_cast<void*>(p.bias));
    arguments.emplace(DNNL_ARG_BIAS, with.bias);
  }
  compiled.product.execute(state_->streams[index], arguments);
}

bool OnednnGemm::multiply(Workers& workers, const GemmBatch& batch) {
  const Grid grid = library_grid(batch, workers.threads());
  std::vector<const Compiled*> compiled;  // by tile of one matrix
  for (int64_t i = 0; i < grid.per_matrix(); ++i) {
    compiled.push_back(compile(slice(batch.first, grid.tile(i)), workers.threads()));
    if (compiled.back() == nullptr) return false;
  }
  run_in_slots(workers, grid.size(), [&](int64_t item, int64_t slot) {
    const GemmProblem part = slice(batch.at(grid.matrix(item)), grid.tile(item));
    run(*compiled[static_cast<size_t>(item % grid.per_matrix())], part, slot);
  });
  return true;
}

bool onednn_computes(DType dtype) {
  if (dtype == DType::kF32) return true;
  if (dtype != DType::kBF16) return false;
  // Each instruction set's bits contain those of the sets it extends.
  constexpr int kNeeded = static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
}

}  // namespace zpp::kernels::cpu

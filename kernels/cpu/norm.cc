#include "kernels/norm.h"

#include "kernels/cpu/launch.h"
#include "kernels/cpu/norm_simd.h"
#include "kernels/norm_blocks.h"

namespace zpp::kernels::cpu {
namespace {

/// What both backward passes share.
struct Backward {
  NormBackward pointers;
  DType dtype;
  int64_t rows;
  Grad dgamma, dbeta;
  View scratch;
};

/// Two loops: blocks of rows with sums of their own, then columns over the blocks.
void run_backward(Workers& workers, const NormSimd& table, NormSimd::Backward* rows_fn,
                  const Backward& b) {
  const int64_t cols = b.pointers.cols;
  const int64_t per_block = norm_rows_per_block(b.rows);
  const int64_t blocks = norm_row_blocks(b.rows);
  const DType sums = accumulator_of(b.dtype);
  const auto partial = [&](int64_t index) -> void* {
    return static_cast<char*>(b.scratch.data) + index * cols * size_of(sums);
  };
  workers.run(blocks, [&](int64_t block) {
    const NormPartials partials{b.dgamma ? partial(2 * block) : nullptr,
                                b.dbeta ? partial(2 * block + 1) : nullptr};
    const int64_t begin = block * per_block;
    rows_fn(b.pointers, partials, begin, std::min(b.rows, begin + per_block));
  });
  for (const Grad* grad : {&b.dgamma, &b.dbeta}) {
    if (!*grad) continue;
    const void* first = partial(grad == &b.dgamma ? 0 : 1);
    workers.parallel_for(cols, std::max<int64_t>(64, kGrain / std::max<int64_t>(1, blocks)),
                         [&](int64_t begin, int64_t end) {
                           table.combine[b.dtype](first, blocks, 2 * cols, grad->view.data,
                                                  grad->accumulate, begin, end);
                         });
  }
}

}  // namespace

void rms_norm(CpuStream& stream, const RmsNorm& args) {
  const NormSimd& table = simd<NormSimd>(stream);
  stream.launch("rms_norm", one_pass(args.x, args.y), [args, &table](Workers& workers) {
    const NormForward pointers{args.x.data, args.gamma.data, nullptr,       args.y.data,
                               nullptr,     args.rstd.data,  args.x.dim(1), args.eps};
    workers.parallel_for(args.x.dim(0), row_grain(args.x.dim(1)), [&](int64_t begin, int64_t end) {
      table.rms_norm[args.x.dtype](pointers, begin, end);
    });
  });
}

void layer_norm(CpuStream& stream, const LayerNorm& args) {
  const NormSimd& table = simd<NormSimd>(stream);
  stream.launch("layer_norm", one_pass(args.x, args.y), [args, &table](Workers& workers) {
    const NormForward pointers{args.x.data,    args.gamma.data, args.beta.data, args.y.data,
                               args.mean.data, args.rstd.data,  args.x.dim(1),  args.eps};
    workers.parallel_for(args.x.dim(0), row_grain(args.x.dim(1)), [&](int64_t begin, int64_t end) {
      table.layer_norm[args.x.dtype](pointers, begin, end);
    });
  });
}

void rms_norm_backward(CpuStream& stream, const RmsNormBackward& args) {
  const NormSimd& table = simd<NormSimd>(stream);
  const Work work = one_pass(args.dy, args.x, args.dx);
  stream.launch("rms_norm_backward", work, [args, &table](Workers& workers) {
    const NormBackward pointers{
        args.dy.data,   args.x.data,       args.gamma.data,    nullptr,
        args.rstd.data, args.dx.view.data, args.dx.accumulate, args.x.dim(1)};
    run_backward(workers, table, table.rms_norm_backward[args.x.dtype],
                 {pointers, args.x.dtype, args.x.dim(0), args.dgamma, Grad{}, args.scratch});
  });
}

void layer_norm_backward(CpuStream& stream, const LayerNormBackward& args) {
  const NormSimd& table = simd<NormSimd>(stream);
  const Work work = one_pass(args.dy, args.x, args.dx);
  stream.launch("layer_norm_backward", work, [args, &table](Workers& workers) {
    const NormBackward pointers{args.dy.data,       args.x.data,    args.gamma.data,
                                args.mean.data,     args.rstd.data, args.dx.view.data,
                                args.dx.accumulate, args.x.dim(1)};
    run_backward(workers, table, table.layer_norm_backward[args.x.dtype],
                 {pointers, args.x.dtype, args.x.dim(0), args.dgamma, args.dbeta, args.scratch});
  });
}

}  // namespace zpp::kernels::cpu

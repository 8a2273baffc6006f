#include "kernels/embedding.h"

#include "kernels/cpu/launch.h"
#include "kernels/dispatch.h"

namespace zpp::kernels {
namespace {

/// tokens and doc_start, of the batch and length of an activation (B, T, C).
void check_ids(std::string_view kernel, const Arg& activation, const Arg& tokens,
               const View& doc_start) {
  const View& x = activation.view;
  check_that(x.shape.rank() == 3, kernel,
             std::string(activation.name) + " is " + x.shape.str() + " but should be (B, T, C)");
  check_dtype(kernel, activation, {DType::kF32, DType::kBF16, DType::kF64});
  check_contiguous(kernel, {activation, tokens, {"doc_start", doc_start}});
  const Shape wanted{x.dim(0), x.dim(1)};
  check_shape(kernel, tokens, wanted);
  check_dtype(kernel, tokens, {DType::kI32});
  if (!doc_start) return;
  check_shape(kernel, {"doc_start", doc_start}, wanted);
  check_dtype(kernel, {"doc_start", doc_start}, {DType::kI32});
}

/// A table (rows, C) with enough rows.
void check_table(std::string_view kernel, const Arg& table, int64_t cols, int64_t min_rows,
                 DType dtype) {
  const Shape& shape = table.view.shape;
  check_that(shape.rank() == 2 && shape[1] == cols && shape[0] >= min_rows, kernel,
             std::string(table.name) + " is " + shape.str() + " but should be (at least " +
                 std::to_string(min_rows) + ", " + std::to_string(cols) + ")");
  check_dtype(kernel, table, {dtype});
  check_contiguous(kernel, {table});
}

}  // namespace

void embedding(Stream& stream, const Embedding& args) {
  constexpr std::string_view kName = "embedding";
  check_args(kName, stream,
             {{"tokens", args.tokens},
              {"table", args.table},
              {"positions", args.positions},
              {"doc_start", args.doc_start},
              {"y", args.y}});
  check_ids(kName, {"y", args.y}, {"tokens", args.tokens}, args.doc_start);
  check_table(kName, {"table", args.table}, args.y.dim(2), 0, args.y.dtype);
  if (args.positions) {
    check_table(kName, {"positions", args.positions}, args.y.dim(2), args.y.dim(1), args.y.dtype);
  }
  cpu::embedding(cpu_stream(kName, stream), args);
}

void embedding_backward(Stream& stream, const EmbeddingBackward& args) {
  constexpr std::string_view kName = "embedding_backward";
  check_args(kName, stream,
             {{"dy", args.dy},
              {"tokens", args.tokens},
              {"doc_start", args.doc_start},
              {"dtable", args.dtable.view},
              {"dpositions", args.dpositions.view}});
  check_ids(kName, {"dy", args.dy}, {"tokens", args.tokens}, args.doc_start);
  const DType sums = accumulator_of(args.dy.dtype);
  if (args.dtable) {
    check_table(kName, {"dtable", args.dtable.view}, args.dy.dim(2), 0, sums);
  }
  if (args.dpositions) {
    check_table(kName, {"dpositions", args.dpositions.view}, args.dy.dim(2), args.dy.dim(1), sums);
  }
  cpu::embedding_backward(cpu_stream(kName, stream), args);
}

}  // namespace zpp::kernels

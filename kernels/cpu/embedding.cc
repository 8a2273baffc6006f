#include "kernels/embedding.h"

#include <fmt/format.h>

#include <cstring>

#include "kernels/cpu/embedding_simd.h"
#include "kernels/cpu/launch.h"

namespace zpp::kernels::cpu {
namespace {

/// Which row of which table each place of the batch reads.
class Places {
 public:
  Places(const char* kernel, const View& tokens, const View& doc_start)
      : kernel_(kernel),
        length_(tokens.dim(1)),
        tokens_(tokens.as<int32_t>()),
        doc_start_(doc_start ? doc_start.as<int32_t>() : nullptr) {}

  int64_t token(int64_t place, int64_t vocabulary) const {
    const int64_t id = tokens_[place];
    if (id >= 0 && id < vocabulary) return id;
    throw Error(
        Code::kInvalidArgument,
        fmt::format("{}: token {} of sample {} has id {} but the table has rows 0 to {}; was "
                    "the data made with another tokenizer?",
                    kernel_, place % length_, place / length_, id, vocabulary - 1));
  }
  int64_t position(int64_t place) const {
    const int64_t t = place % length_;
    const int64_t start = doc_start_ == nullptr ? 0 : doc_start_[place];
    if (start >= 0 && start <= t) return t - start;
    throw Error(
        Code::kInvalidArgument,
        fmt::format("{}: the document of token {} of sample {} starts at {}, which is not in "
                    "0 to {}",
                    kernel_, t, place / length_, start, t));
  }

 private:
  const char* kernel_;
  int64_t length_;
  const int32_t* tokens_;
  const int32_t* doc_start_;
};

char* at(const View& view, int64_t element) {
  return static_cast<char*>(view.data) + element * size_of(view.dtype);
}

/// Asks for a part of a table ahead of its use: a processor cannot guess which row comes next.
void prefetch(const View& table, int64_t element, int64_t n) {
  constexpr int64_t kLine = 64;
  const char* from = at(table, element);
  for (int64_t byte = 0; byte < n * size_of(table.dtype); byte += kLine) {
    __builtin_prefetch(from + byte);
  }
}
/// How many places ahead.
constexpr int64_t kAhead = 2;

void clear(Workers& workers, const Grad& grad) {
  if (!grad || grad.accumulate) return;
  workers.parallel_for(grad.view.bytes(), 4 * kGrain, [&](int64_t begin, int64_t end) {
    std::memset(static_cast<char*>(grad.view.data) + begin, 0, static_cast<size_t>(end - begin));
  });
}

/// Each part owns some channels of both tables and walks over all tokens, so that every element is
/// summed in token order.
void scatter(Workers& workers, const EmbeddingBackward& args, EmbeddingSimd::Add* add) {
  const Places places("embedding_backward", args.tokens, args.doc_start);
  const int64_t count = args.tokens.numel();
  const int64_t cols = args.dy.dim(2);
  constexpr int64_t kLine = 16;  // channels, so that parts do not share cache lines
  workers.parallel_for((cols + kLine - 1) / kLine, 2, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kLine;
    const int64_t n = std::min(cols, end * kLine) - first;
    for (int64_t place = 0; place < count; ++place) {
      const void* dy = at(args.dy, place * cols + first);
      if (args.dtable && place + kAhead < count) {
        const int64_t row = places.token(place + kAhead, args.dtable.view.dim(0));
        prefetch(args.dtable.view, row * cols + first, n);
      }
      if (args.dtable) {
        const int64_t row = places.token(place, args.dtable.view.dim(0));
        add(dy, at(args.dtable.view, row * cols + first), n);
      }
      if (args.dpositions) {
        add(dy, at(args.dpositions.view, places.position(place) * cols + first), n);
      }
    }
  });
}

}  // namespace

void embedding(CpuStream& stream, const Embedding& args) {
  auto* row = simd<EmbeddingSimd>(stream).row[args.y.dtype];
  // The rows of the tables that it reads are as large as what it writes.
  const Work work = args.positions ? one_pass(args.y, args.y, args.y) : one_pass(args.y, args.y);
  stream.launch("embedding", work, [args, row](Workers& workers) {
    const Places places("embedding", args.tokens, args.doc_start);
    const int64_t cols = args.y.dim(2);
    workers.parallel_for(args.tokens.numel(), row_grain(cols), [&](int64_t begin, int64_t end) {
      for (int64_t place = begin; place < end; ++place) {
        if (place + kAhead < end) {
          prefetch(args.table, places.token(place + kAhead, args.table.dim(0)) * cols, cols);
        }
        const void* token = at(args.table, places.token(place, args.table.dim(0)) * cols);
        const void* position =
            args.positions ? at(args.positions, places.position(place) * cols) : nullptr;
        row(token, position, at(args.y, place * cols), cols);
      }
    });
  });
}

void embedding_backward(CpuStream& stream, const EmbeddingBackward& args) {
  auto* add = simd<EmbeddingSimd>(stream).add[args.dy.dtype];
  Work work = one_pass(args.dy);
  for (const Grad* grad : {&args.dtable, &args.dpositions}) {
    if (!*grad) continue;
    if (!grad->accumulate) work.bytes += traffic(grad->view);
    work.bytes += 2.0 * static_cast<double>(args.dy.numel() * size_of(grad->view.dtype));
  }
  stream.launch("embedding_backward", work, [args, add](Workers& workers) {
    clear(workers, args.dtable);
    clear(workers, args.dpositions);
    scatter(workers, args, add);
  });
}

}  // namespace zpp::kernels::cpu

#include "kernels/embedding.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/kernels/op_case.h"

namespace zpp::kernels {
namespace {

struct Size {
  int64_t batch, length, vocabulary, channels;
};
constexpr Size kSizes[] = {{0, 5, 4, 8}, {1, 1, 1, 1}, {2, 5, 7, 19}, {3, 40, 11, 130}};

/// Documents of three tokens.
Fill document_starts(int64_t length) {
  return [=](uint64_t, int64_t i) { return static_cast<double>(i % length / 3 * 3); };
}

struct Options {
  bool positions, documents;
};
constexpr Options kOptions[] = {{false, false}, {true, false}, {true, true}};

size_t position_of(const Values& doc_start, Options o, size_t place, Size s) {
  const size_t t = place % static_cast<size_t>(s.length);
  return o.documents ? t - static_cast<size_t>(doc_start[place]) : t;
}

OpCase embedding_case(Size s, Options o) {
  OpCase op;
  op.name = fmt::format("embedding {}x{} of {}x{} positions {} documents {}", s.batch, s.length,
                        s.vocabulary, s.channels, o.positions, o.documents);
  const Shape ids{s.batch, s.length};
  op.inputs = {
      {.name = "tokens", .shape = ids, .role = Role::kI32, .fill = integers(0, s.vocabulary)},
      {.name = "table", .shape = {s.vocabulary, s.channels}},
      {.name = "positions", .shape = {s.length + 2, s.channels}},
      {.name = "doc_start", .shape = ids, .role = Role::kI32, .fill = document_starts(s.length)}};
  op.outputs = {{.name = "y", .shape = {s.batch, s.length, s.channels}}};
  op.run = [=](Stream& stream, const Views& in, const Views& out) {
    embedding(stream,
              {in[0], in[1], o.positions ? in[2] : View{}, o.documents ? in[3] : View{}, out[0]});
  };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    const auto cols = static_cast<size_t>(s.channels);
    for (size_t i = 0; i < out[0].size(); ++i) {
      const size_t place = i / cols, c = i % cols;
      out[0][i] = in[1][static_cast<size_t>(in[0][place]) * cols + c];
      if (o.positions) out[0][i] += in[2][position_of(in[3], o, place, s) * cols + c];
    }
  };
  return op;
}

OpCase backward_case(Size s, Options o, bool accumulate) {
  OpCase op = embedding_case(s, o);
  op.name = "backward of " + op.name + (accumulate ? " accumulated" : "");
  op.inputs[1] = {.name = "dy", .shape = {s.batch, s.length, s.channels}};
  const Fill before = accumulate ? normal() : Fill{};
  const auto terms = static_cast<double>(s.batch * s.length);
  op.outputs = {{.name = "dtable",
                 .shape = {s.vocabulary, s.channels},
                 .role = Role::kAccum,
                 .fill = before,
                 .terms = terms},
                {.name = "dpositions",
                 .shape = {s.length + 2, s.channels},
                 .role = Role::kAccum,
                 .fill = o.positions ? before : constant(0.0),
                 .terms = terms}};
  op.run = [=](Stream& stream, const Views& in, const Views& out) {
    embedding_backward(stream, {.dy = in[1],
                                .tokens = in[0],
                                .doc_start = o.documents ? in[3] : View{},
                                .dtable = {out[0], accumulate},
                                .dpositions = {o.positions ? out[1] : View{}, accumulate}});
  };
  op.reference = [=](const std::vector<Values>& in, std::vector<Values>& out) {
    const auto cols = static_cast<size_t>(s.channels);
    if (!accumulate) {
      for (Values& values : out) std::fill(values.begin(), values.end(), 0.0);
    }
    for (size_t i = 0; i < in[1].size(); ++i) {
      const size_t place = i / cols, c = i % cols;
      out[0][static_cast<size_t>(in[0][place]) * cols + c] += in[1][i];
      if (o.positions) out[1][position_of(in[3], o, place, s) * cols + c] += in[1][i];
    }
  };
  return op;
}

TEST(Embedding, AgreesWithTheReference) {
  for (Size s : kSizes) {
    for (Options o : kOptions) run_op_case(embedding_case(s, o));
  }
}

TEST(Embedding, BackwardAgreesWithTheReference) {
  for (Size s : kSizes) {
    for (Options o : kOptions) {
      for (bool accumulate : {false, true}) run_op_case(backward_case(s, o, accumulate));
    }
  }
}

TEST(Embedding, BackwardIsTheGradientOfForward) {
  const Options o{true, true};
  GradientCase grad;
  grad.forward = embedding_case({2, 5, 7, 3}, o);
  grad.wrt = {1, 2};
  grad.through = {0};
  grad.backward = [](Stream& stream, const Views& in, const Views&, const Views& dout,
                     const Views& din, const std::function<View(int64_t)>&) {
    embedding_backward(stream, {dout[0], in[0], in[3], {din[0]}, {din[1]}});
  };
  check_gradient(grad);
}

class EmbeddingArguments : public testing::Test {
 protected:
  void set_tokens(const std::vector<int32_t>& ids) {
    copy_from_host(stream(), ids, tokens_.view());
  }
  Stream& stream() { return runtime_.compute(); }

  Runtime runtime_{{.device = {}, .threads = 2}};
  Tensor tokens_ = runtime_.tensor({2, 3}, DType::kI32);
  Tensor table_ = runtime_.tensor({10, 4}, DType::kF32);
  Tensor y_ = runtime_.tensor({2, 3, 4}, DType::kF32);
};

TEST_F(EmbeddingArguments, ATokenOutsideTheTableIsNamedWithItsPlace) {
  set_tokens({0, 1, 2, 3, 10, 5});
  embedding(stream(), {tokens_.view(), table_.view(), {}, {}, y_.view()});
  const std::string complaint = complaint_of([&] { stream().synchronize(); });
  EXPECT_NE(complaint.find("token 1 of sample 1 has id 10 but the table has rows 0 to 9"),
            std::string::npos)
      << complaint;
}

TEST_F(EmbeddingArguments, ANegativeTokenIsRefusedByBackward) {
  set_tokens({-1, 1, 2, 3, 4, 5});
  embedding_backward(stream(), {y_.view(), tokens_.view(), {}, {table_.view()}, {}});
  const std::string complaint = complaint_of([&] { stream().synchronize(); });
  EXPECT_NE(complaint.find("token 0 of sample 0 has id -1"), std::string::npos) << complaint;
}

TEST_F(EmbeddingArguments, ADocumentThatStartsLaterIsRefused) {
  const Tensor starts = runtime_.tensor({2, 3}, DType::kI32);
  set_tokens({0, 0, 0, 0, 0, 0});
  copy_from_host(stream(), std::vector<int32_t>{0, 0, 0, 0, 2, 2}, starts.view());
  embedding(stream(), {tokens_.view(), table_.view(), table_.view(), starts.view(), y_.view()});
  const std::string complaint = complaint_of([&] { stream().synchronize(); });
  EXPECT_NE(complaint.find("the document of token 1 of sample 1 starts at 2"), std::string::npos)
      << complaint;
}

TEST_F(EmbeddingArguments, OfAnotherShapeAreNamed) {
  const Tensor few = runtime_.tensor({2, 4}, DType::kF32);
  EXPECT_EQ(complaint_of([&] {
              embedding(stream(), {tokens_.view(), table_.view(), few.view(), {}, y_.view()});
            }),
            "embedding: positions is (2, 4) but should be (at least 3, 4)");
  EXPECT_EQ(
      complaint_of([&] {
        embedding(
            stream(),
            {tokens_.view().transpose(0, 1).slice(0, 0, 2), table_.view(), {}, {}, y_.view()});
      }),
      "embedding: tokens (2, 2) has strides (1, 3) but should be dense row-major");
  EXPECT_EQ(complaint_of([&] {
              embedding_backward(stream(), {y_.view(), y_.view(), {}, {table_.view()}, {}});
            }),
            "embedding_backward: tokens is (2, 3, 4) but should be (2, 3)");
}

}  // namespace
}  // namespace zpp::kernels

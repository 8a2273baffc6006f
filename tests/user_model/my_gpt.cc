// A model of one's own: one file and one entry in BUILD.
#include "model/modeling.h"

namespace {

using namespace zpp;

struct MyGptConfig {
  int64_t vocab = 257, layers = 4, heads = 4, width = 128, context = 128;
  double eps = 1e-5;

  void fields(Fields& f) {
    f("vocab", vocab, "rows of the token table", 1, 1 << 24)("layers", layers, "blocks", 1, 4096);
    f("heads", heads, "attention heads; divides width", 1, 1024);
    f("width", width, "channels of each token", 1, 1 << 20);
    f("context", context, "longest row of tokens", 1, 1 << 24);
    f("eps", eps, "added to the mean square", 0.0, 1.0);
  }

  void check(std::string_view prefix, Problems& problems) const {
    if (width % heads != 0) problems.add(std::string(prefix) + ".heads", "does not divide width");
  }
};

class Block final : public Unit {
 public:
  Block(const Scope& s, const MyGptConfig& c)
      : Unit(s),
        c_(c),
        norm1_(s / "norm1", c.width, c.eps),
        qkv_(s / "qkv", c.width, 3 * c.width, {.bias = false}),
        proj_(s / "proj", c.width, c.width, {.bias = false}),
        norm2_(s / "norm2", c.width, c.eps),
        gate_up_(s / "gate_up", c.width, 8 * c.width, {.bias = false}),
        down_(s / "down", 4 * c.width, c.width, {.bias = false}) {}

 protected:
  Value forward(const Value& x) override {  // (B, T, C)
    const RopeSpec all = {.rotary_dims = c_.width / c_.heads};
    const Value qkv = rope(qkv_(norm1_(x)), c_.heads, c_.heads, all);
    const Value h = add(x, proj_(causal_attention(qkv, c_.heads)));
    return add(h, down_(swiglu(gate_up_(norm2_(h)))));
  }

 private:
  const MyGptConfig c_;
  RmsNorm norm1_;
  Linear qkv_, proj_;
  RmsNorm norm2_;
  Linear gate_up_, down_;
};

class MyGpt final : public Model {
 public:
  MyGpt(const Scope& s, const MyGptConfig& c)
      : Model(s),
        c_(c),
        table_(s.parameter("table", {c.vocab, c.width})),
        blocks_(s / "blocks", c.layers, c),
        norm_(s / "norm", c.width, c.eps) {}

  Value loss(Tape& tape, const Batch& batch) override {
    return linear_cross_entropy(hidden(tape, batch), table_, batch);  // tied head
  }

  Value logits(Tape& tape, const Batch& batch) override {
    return linear_f32(last_position(hidden(tape, batch)), table_);
  }

  double flops_per_token() const override {
    const double width = static_cast<double>(c_.width), layers = static_cast<double>(c_.layers);
    const double weights = 16.0 * layers * width * width + static_cast<double>(c_.vocab) * width;
    return 6.0 * weights + 6.0 * layers * static_cast<double>(c_.context) * width;
  }

 private:
  Value hidden(Tape& tape, const Batch& batch) {
    return norm_(blocks_(embedding(tape, batch.tokens, table_)));
  }

  const MyGptConfig c_;
  Parameter& table_;
  Stack<Block> blocks_;
  RmsNorm norm_;
};

ZPP_REGISTER_MODEL("my_gpt", MyGpt, MyGptConfig);

}  // namespace

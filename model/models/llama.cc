// Llama: RMSNorm before each branch, rotary positions, SwiGLU, and key heads that may serve several
// query heads. Source: Touvron et al. 2023, arXiv:2302.13971; grouped queries: Ainslie et al. 2023,
// arXiv:2305.13245
#include <cmath>
#include <optional>
#include <string>

#include "model/modeling.h"

namespace zpp {
namespace {

struct LlamaConfig {
  int64_t layers = 32, width = 4096, heads = 32, context = 2048, vocab = 32000;
  std::optional<int64_t> kv_heads, ffn;
  bool tied_head = false;
  double rope_theta = 10000.0, norm_eps = 1e-5, init_std = 0.02;

  void fields(Fields& f) {
    f("layers", layers, "blocks", 1, 4096)("width", width, "channels of each token", 1, 1 << 20);
    f("heads", heads, "query heads; divides width", 1, 4096);
    f("kv_heads", kv_heads, "key and value heads; divides heads; heads when absent", 1, 4096);
    f("context", context, "longest row of tokens", 1, 1 << 24);
    f("vocab", vocab, "rows of the token table", 1, 1 << 24);
    f("ffn", ffn,
      "inner channels of the feed-forward branch; 8/3 width, rounded up to 256, when absent", 1,
      1 << 22);
    f("tied_head", tied_head, "logits from the token table instead of a matrix of their own");
    f("rope_theta", rope_theta, "base of the rotary wavelengths", 1.0, 1e9);
    f("norm_eps", norm_eps, "added to the mean square", 0.0, 1.0);
    f("init_std", init_std,
      "spread of initial weights; residual projections get 1 / sqrt(2 layers) of it", 0.0, 10.0);
  }

  void check(std::string_view prefix, Problems& problems) const {
    const std::string section(prefix);
    if (width % heads != 0) {
      problems.add(section + ".heads", "is " + std::to_string(heads) +
                                           " but should divide width, " + std::to_string(width));
    } else if (head_width() % 2 != 0) {
      problems.add(section + ".heads",
                   "makes heads of " + std::to_string(head_width()) +
                       " channels, but rotary positions turn pairs: it should be even");
    }
    if (heads % keys() != 0) {
      problems.add(section + ".kv_heads", "is " + std::to_string(keys()) +
                                              " but should divide heads, " + std::to_string(heads));
    }
  }

  int64_t keys() const { return kv_heads.value_or(heads); }
  int64_t head_width() const { return width / heads; }
  int64_t inner() const { return ffn.value_or((8 * width / 3 + 255) / 256 * 256); }
  Linear::Options projection() const {
    return {.bias = false, .init_std = static_cast<float>(init_std)};
  }
  Linear::Options residual() const {
    return {
        .bias = false,
        .init_std = static_cast<float>(init_std / std::sqrt(2.0 * static_cast<double>(layers)))};
  }
};

class LlamaBlock final : public Unit {
 public:
  LlamaBlock(const Scope& s, const LlamaConfig& c)
      : Unit(s),
        c_(c),
        norm1_(s / "norm1", c.width, c.norm_eps),
        qkv_(s / "qkv", c.width, (c.heads + 2 * c.keys()) * c.head_width(), c.projection()),
        proj_(s / "proj", c.width, c.width, c.residual()),
        norm2_(s / "norm2", c.width, c.norm_eps),
        gate_up_(s / "gate_up", c.width, 2 * c.inner(), c.projection()),
        down_(s / "down", c.inner(), c.width, c.residual()) {}

 protected:
  Value forward(const Value& x) override {  // (B, T, C)
    const Value qkv = rope(qkv_(norm1_(x)), c_.heads, c_.keys(),
                           {.rotary_dims = c_.head_width(), .theta = c_.rope_theta});
    const Value h = add(x, proj_(causal_attention(qkv, c_.heads, c_.keys())));
    return add(h, down_(swiglu(gate_up_(norm2_(h)))));
  }

 private:
  const LlamaConfig c_;
  RmsNorm norm1_;
  Linear qkv_, proj_;
  RmsNorm norm2_;
  Linear gate_up_, down_;
};

class Llama final : public Model {
 public:
  Llama(const Scope& s, const LlamaConfig& c)
      : Model(s),
        c_(c),
        tokens_(s.parameter("tokens", {c.vocab, c.width}, normal())),
        blocks_(s / "blocks", c.layers, c),
        norm_(s / "norm", c.width, c.norm_eps),
        head_(c.tied_head ? tokens_ : s.parameter("head", {c.vocab, c.width}, normal())) {}

  Value loss(Tape& tape, const Batch& batch) override {
    return linear_cross_entropy(hidden(tape, batch), head_, batch);
  }

  Value logits(Tape& tape, const Batch& batch) override {
    return linear_f32(last_position(hidden(tape, batch)), head_);
  }

  // As for GPT: six operations per weight of a matrix product, attention by what causality leaves
  // of the square.
  double flops_per_token() const override {
    const double width = static_cast<double>(c_.width), layers = static_cast<double>(c_.layers);
    const double projected = static_cast<double>((c_.heads + 2 * c_.keys()) * c_.head_width());
    const double weights =
        layers * width * (projected + width + 3.0 * static_cast<double>(c_.inner())) +
        static_cast<double>(c_.vocab) * width;
    return 6.0 * weights + 6.0 * layers * static_cast<double>(c_.context) * width;
  }

 private:
  Init normal() const { return {Init::kNormal, static_cast<float>(c_.init_std)}; }

  Value hidden(Tape& tape, const Batch& batch) {
    return norm_(blocks_(embedding(tape, batch.tokens, tokens_)));
  }

  const LlamaConfig c_;
  Parameter& tokens_;
  Stack<LlamaBlock> blocks_;
  RmsNorm norm_;
  Parameter& head_;
};

ZPP_REGISTER_MODEL("llama", Llama, LlamaConfig);

}  // namespace
}  // namespace zpp

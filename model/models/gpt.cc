// GPT: LayerNorm before each branch, fused query-key-value projection, GELU. With its defaults the
// GPT-2 layout (Radford et al. 2019); with rotary positions on a part of each head, both branches
// reading the block's input and a head of its own it is GPT-NeoX (Black et al. 2022,
// arXiv:2204.06745).
#include <cmath>
#include <memory>
#include <optional>
#include <string>

#include "model/modeling.h"

namespace zpp {
namespace {

struct GptConfig {
  int64_t layers = 12, width = 768, heads = 12, context = 1024, vocab = 50257;
  std::optional<int64_t> ffn;
  double dropout = 0.0;
  bool bias = true;
  std::string positions = "learned";
  double rotary_fraction = 1.0, rope_theta = 10000.0;
  bool parallel_residual = false, tied_head = true;
  std::string gelu = "tanh";
  double norm_eps = 1e-5, init_std = 0.02;

  void fields(Fields& f) {
    f("layers", layers, "blocks", 1, 4096)("width", width, "channels of each token", 1, 1 << 20);
    f("heads", heads, "attention heads; divides width", 1, 4096);
    f("context", context, "longest row of tokens", 1, 1 << 24);
    f("vocab", vocab, "rows of the token table", 1, 1 << 24);
    f("ffn", ffn, "inner channels of the feed-forward branch; 4 * width when absent", 1, 1 << 22);
    f("dropout", dropout, "on the embeddings and on what each branch adds", 0.0, 0.9);
    f("bias", bias, "biases in projections and norms");
    f("positions", positions, "how tokens know where they are", {"learned", "rotary"});
    f("rotary_fraction", rotary_fraction, "part of each head that turns with rotary positions", 0.0,
      1.0);
    f("rope_theta", rope_theta, "base of the rotary wavelengths", 1.0, 1e9);
    f("parallel_residual", parallel_residual, "both branches read the block's input");
    f("tied_head", tied_head, "logits from the token table instead of a matrix of their own");
    f("gelu", gelu, "form of the activation", {"tanh", "erf"});
    f("norm_eps", norm_eps, "added to the variance", 0.0, 1.0);
    f("init_std", init_std,
      "spread of initial weights; residual projections get 1 / sqrt(2 layers) of it", 0.0, 10.0);
  }

  void check(std::string_view prefix, Problems& problems) const {
    const std::string section(prefix);
    if (width % heads != 0) {
      problems.add(section + ".heads", "is " + std::to_string(heads) +
                                           " but should divide width, " + std::to_string(width));
    } else if (rotary() && (rotary_dims() < 2 || rotary_dims() % 2 != 0)) {
      problems.add(section + ".rotary_fraction", "makes " + std::to_string(rotary_dims()) + " of " +
                                                     std::to_string(width / heads) +
                                                     " channels of a head turn, but they turn in "
                                                     "pairs: it should be an even number above 0");
    }
  }

  bool rotary() const { return positions == "rotary"; }
  int64_t rotary_dims() const {
    return std::llround(rotary_fraction * static_cast<double>(width / heads));
  }
  int64_t inner() const { return ffn.value_or(4 * width); }
  LayerNorm::Options norm() const { return {.bias = bias, .eps = norm_eps}; }
  Linear::Options projection() const {
    return {.bias = bias, .init_std = static_cast<float>(init_std)};
  }
  Linear::Options residual() const {
    return {
        .bias = bias,
        .init_std = static_cast<float>(init_std / std::sqrt(2.0 * static_cast<double>(layers)))};
  }
};

class GptBlock final : public Unit {
 public:
  GptBlock(const Scope& s, const GptConfig& c)
      : Unit(s),
        c_(c),
        norm1_(s / "norm1", c.width, c.norm()),
        qkv_(s / "qkv", c.width, 3 * c.width, c.projection()),
        proj_(s / "proj", c.width, c.width, c.residual()),
        norm2_(s / "norm2", c.width, c.norm()),
        up_(s / "up", c.width, c.inner(), c.projection()),
        down_(s / "down", c.inner(), c.width, c.residual()) {}

 protected:
  Value forward(const Value& x) override {  // (B, T, C)
    Value h = add(x, dropout(attend(norm1_(x)), c_.dropout));
    return add(h, dropout(feed_forward(norm2_(c_.parallel_residual ? x : h)), c_.dropout));
  }

 private:
  Value attend(const Value& x) {
    Value qkv = qkv_(x);  // (B, T, 3C)
    if (c_.rotary()) {
      qkv = rope(std::move(qkv), c_.heads, c_.heads,
                 {.rotary_dims = c_.rotary_dims(), .theta = c_.rope_theta});
    }
    return proj_(causal_attention(qkv, c_.heads));
  }

  Value feed_forward(const Value& x) {
    return down_(gelu(up_(x), c_.gelu == "erf" ? Activation::kGeluErf : Activation::kGeluTanh));
  }

  const GptConfig c_;
  LayerNorm norm1_;
  Linear qkv_, proj_;
  LayerNorm norm2_;
  Linear up_, down_;
};

class Gpt final : public Model {
 public:
  Gpt(const Scope& s, const GptConfig& c)
      : Model(s),
        c_(c),
        tokens_(s.parameter("tokens", {c.vocab, c.width}, normal())),
        positions_(c.rotary() ? nullptr
                              : &s.parameter("positions", {c.context, c.width}, normal())),
        blocks_(s / "blocks", c.layers, c),
        norm_(s / "norm", c.width, c.norm()),
        head_(c.tied_head ? tokens_ : s.parameter("head", {c.vocab, c.width}, normal())) {}

  Value loss(Tape& tape, const Batch& batch) override {
    return linear_cross_entropy(hidden(tape, batch), head_, batch);
  }

  Value logits(Tape& tape, const Batch& batch) override {
    return linear_f32(last_position(hidden(tape, batch)), head_);
  }

  // Six operations (a multiplication and an addition, forward and twice backward) per weight of a
  // matrix product; lookups are none. Attention counts what causality leaves: token t meets t + 1
  // keys, context / 2 on average, in two products of width channels each. The full square, as in
  // appendix B of the PaLM paper (arXiv:2204.02311), would be twice that.
  double flops_per_token() const override {
    const double width = static_cast<double>(c_.width), layers = static_cast<double>(c_.layers);
    const double weights = layers * width * (4.0 * width + 2.0 * static_cast<double>(c_.inner())) +
                           static_cast<double>(c_.vocab) * width;
    return 6.0 * weights + 6.0 * layers * static_cast<double>(c_.context) * width;
  }

 private:
  Init normal() const { return {Init::kNormal, static_cast<float>(c_.init_std)}; }

  Value hidden(Tape& tape, const Batch& batch) {
    return norm_(blocks_(dropout(embedding(tape, batch.tokens, tokens_, positions_), c_.dropout)));
  }

  const GptConfig c_;
  Parameter& tokens_;
  Parameter* const positions_;
  Stack<GptBlock> blocks_;
  LayerNorm norm_;
  Parameter& head_;
};

ZPP_REGISTER_MODEL("gpt", Gpt, GptConfig);

}  // namespace
}  // namespace zpp

#include "parallel/train_config.h"

#include <fmt/format.h>

#include <cmath>

#include "core/json_tree.h"

namespace zpp {
namespace {

constexpr int64_t kMany = int64_t{1} << 40;
// Of a step or an evaluation: their token ids are held in memory.
constexpr int64_t kMostSequences = int64_t{1} << 20;

/// Everything about one configuration text that the checks below need.
struct Parsing {
  const ParseOptions& options;
  TrainConfig& config;
  Problems& problems;
  bool has_model = false;  // of any kind
};

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const ModelEntry* entry : registered_models()) names.push_back(entry->name);
  return names;
}

/// The registered model that the section names; a problem and null if there is none.
const ModelEntry* choose_model(const Parsing& p) {
  if (p.config.model.empty()) {
    // What is no object has been reported by the parser.
    if (!p.has_model) {
      p.problems.add("model", R"(missing; at least its name is needed, as in {"name": "gpt"})");
    }
    return nullptr;
  }
  JsonSyntaxError error;
  const std::optional<JsonNode> section =
      parse_json(p.config.model, JsonComments::kAllowed, &error);
  const JsonNode* name = section ? section->find("name") : nullptr;
  const std::vector<std::string> names = model_names();
  if (name == nullptr || name->kind != JsonNode::Kind::kString) {
    p.problems.add("model.name", fmt::format("expected one of {}, found {}", fmt::join(names, ", "),
                                             name == nullptr ? "nothing" : to_json(*name)));
    return nullptr;
  }
  const ModelEntry* entry = find_model(name->text);
  if (entry == nullptr) {
    const std::optional<std::string> near = nearest_name(name->text, names);
    p.problems.add("model.name",
                   fmt::format("no model \"{}\" is part of this program, which has {}{}",
                               name->text, fmt::join(names, ", "),
                               near ? fmt::format("; did you mean \"{}\"?", *near) : ""));
  }
  return entry;
}

void resolve_model(const Parsing& p) {
  p.config.model_entry = choose_model(p);
  if (p.config.model_entry == nullptr) return;
  ParseOptions options = p.options;
  options.prefix = "model";
  p.config.facts = p.config.model_entry->check(p.config.model, options, p.problems);
  if (!p.problems.empty()) return;
  const std::string fields = p.config.model_entry->resolve(p.config.model);
  JsonSyntaxError error;
  std::optional<JsonNode> node = parse_json(fields, JsonComments::kRefused, &error);
  if (!node) throw Error(Code::kInternal, "model section does not resolve to JSON: " + error.text);
  JsonNode name;
  name.kind = JsonNode::Kind::kString;
  name.text = p.config.model_entry->name;
  node->members.insert(node->members.begin(), {"name", std::move(name)});
  p.config.model = to_json(*node, 2);
}

void check_run(const Parsing& p) {
  RunSection& run = p.config.run;
  if (run.name.empty() || run.name == "." || run.name == ".." ||
      run.name.find('/') != std::string::npos) {
    p.problems.add("run.name",
                   "expected the name of a folder, without '/', found " + json_quote(run.name));
  }
  if (run.dir.empty()) run.dir = "runs/" + run.name;
  if (run.device == "cuda") {
    p.problems.add("run.device", "this build computes on the cpu only");
  }
}

void check_batches(const Parsing& p) {
  TrainSection& train = p.config.train;
  if (train.micro_batch && train.global_batch % *train.micro_batch != 0) {
    p.problems.add("train.micro_batch",
                   fmt::format("{} does not divide train.global_batch, which is {}",
                               *train.micro_batch, train.global_batch));
  }
  if (p.config.data.train.empty()) {
    p.problems.add("data.train", R"(expected a list of files, as in [{"path": "train.bin"}])");
  }
  if (train.eval_every > 0 && p.config.data.val.empty()) {
    p.problems.add("data.val",
                   fmt::format("empty, but train.eval_every is {}: name a file to evaluate on or "
                               "set train.eval_every to 0",
                               train.eval_every));
  }
}

void check_schedule(const Parsing& p) {
  const ScheduleConfig& schedule = p.config.schedule;
  const int64_t steps = p.config.train.steps;
  if (schedule.warmup_steps > 0 && schedule.warmup_steps >= steps) {
    p.problems.add(
        "schedule.warmup_steps",
        fmt::format("{} is not less than train.steps, which is {}", schedule.warmup_steps, steps));
  }
  if (schedule.min_lr > p.config.optimizer.lr) {
    p.problems.add("schedule.min_lr", fmt::format("{} is more than optimizer.lr, which is {}",
                                                  schedule.min_lr, p.config.optimizer.lr));
  }
  if (!schedule.decay_steps) return;
  if (schedule.name == "constant") {
    p.problems.add("schedule.decay_steps", "has no meaning for the constant schedule");
  } else if (schedule.name == "wsd") {
    if (*schedule.decay_steps > steps - schedule.warmup_steps) {
      p.problems.add("schedule.decay_steps",
                     fmt::format("{} is more than the {} steps after the warm-up",
                                 *schedule.decay_steps, steps - schedule.warmup_steps));
    }
  } else if (*schedule.decay_steps <= schedule.warmup_steps) {
    p.problems.add("schedule.decay_steps",
                   fmt::format("the decay ends at step {}, within the {} steps of warm-up",
                               *schedule.decay_steps, schedule.warmup_steps));
  }
}

void check_precision(const Parsing& p) {
  const PrecisionSection& precision = p.config.precision;
  if (precision.compute == "f16") {
    p.problems.add("precision.compute", "f16 needs a GPU; on the cpu use bf16 or f32");
  } else if (precision.loss_scale) {
    p.problems.add(
        "precision.loss_scale",
        fmt::format("only f16 needs a loss scale, and precision.compute is {}", precision.compute));
  }
}

void check_sample(const Parsing& p) {
  if (p.config.sample.tokens == 0 || p.config.facts.vocab == 0) return;
  if (p.config.sample.prompt.empty()) {
    p.problems.add("sample.prompt", "expected at least one character to start from");
  }
  for (const char c : p.config.sample.prompt) {
    const int id = static_cast<unsigned char>(c);
    if (id < p.config.facts.vocab) continue;
    p.problems.add("sample.prompt",
                   fmt::format("its byte {} is no token of the model, whose vocab is {}; set "
                               "sample.tokens to 0 for a vocabulary that is not made of bytes",
                               id, p.config.facts.vocab));
    return;
  }
}

}  // namespace

void RunSection::fields(Fields& f) {
  f("name", name, "what the run is called")(
      "dir", dir, "directory that the run writes to, default runs/<name>")(
      "seed", seed, "of initial weights, order of the data, dropout and samples", 0, INT64_MAX)(
      "device", device, "what computes", {"cpu", "cuda"})(
      "threads", threads, "threads of the kernels; 0: all cores", 0, 4096);
}

void TrainSection::fields(Fields& f) {
  f("steps", steps, "optimizer steps", 1, kMany)("global_batch", global_batch, "sequences per step",
                                                 1, kMostSequences)(
      "micro_batch", micro_batch,
      "sequences that a rank computes at once; gradients of a step's micro-batches are added up; "
      "default global_batch / ranks",
      1, kMostSequences)("grad_clip", grad_clip,
                         "largest global norm of the gradient; 0: no clipping", 0.0, 1e9)(
      "eval_every", eval_every, "steps between evaluations; 0: never", 0, kMany)(
      "eval_batches", eval_batches,
      "evaluation reads this times global_batch windows, always the same", 1, kMostSequences)(
      "recompute", recompute,
      "what backward computes again instead of keeping: nothing, or each unit's forward",
      {"none", "unit"})(
      "max_bad_steps", max_bad_steps,
      "steps in a row with a loss or gradient that is not finite, after which training stops", 1,
      kMany)("frozen", frozen,
             "parameters that keep their initial values, by name or by what is around them: "
             "\"tokens\", \"blocks.0\"");
}

void PrecisionSection::fields(Fields& f) {
  f("compute", compute, "dtype of weights and activations; master weights are f32 (f64 for f64)",
    {"f32", "bf16", "f16", "f64"})("loss_scale", loss_scale, "factor on the loss, for f16", 1e-30,
                                   1e30);
}

void LogSection::fields(Fields& f) {
  f("every", every, "steps between lines of the log and of metrics.jsonl", 1, kMany)
      .refused("tensorboard", "this build writes metrics.jsonl only")
      .refused("trace_steps", "this build does not record traces");
}

void SampleSection::fields(Fields& f) {
  f("tokens", tokens, "tokens generated at the end of the run; 0: none", 0, 1 << 20)(
      "temperature", temperature, "divides the logits; 0: always the most likely token", 0.0,
      100.0)("top_k", top_k, "sample among this many most likely tokens; 0: among all", 0, 1 << 30)(
      "prompt", prompt, "text to start from");
}

void BuildSection::fields(Fields& f) {
  f("version", version, "release")("git_revision", git_revision, "commit");
}

void TrainConfig::fields(Fields& f) {
  f.section("run", run, "where and on what")
      .json("model", model, R"(the model: its registered "name", then its own keys)")
      .section("data", data, "what to learn from")
      .section("train", train, "the loop")
      .section("optimizer", optimizer, "the update rule")
      .section("schedule", schedule, "the learning rate over time")
      .section("precision", precision, "number formats")
      .section("zero", zero, "what is spread over the ranks, and how it travels")
      .section("log", log, "what is reported")
      .section("sample", sample, "the text generated at the end")
      .section("launch", launch, "how many processes, where, and how they meet")
      .section("build", build, "written to config.json of a run; ignored when read")
      .refused("checkpoint", "this build does not write checkpoints");
}

DType TrainConfig::compute() const {
  if (precision.compute == "f64") return DType::kF64;
  return precision.compute == "bf16" ? DType::kBF16 : DType::kF32;
}

TrainConfig parse_train_config(std::string_view text, const std::string& source,
                               const std::vector<std::string>& overrides) {
  std::string changed(text);
  for (const std::string& o : overrides) changed = apply_override(changed, o, source);
  Problems sections, problems;
  const ParseOptions options{.source = source, .overrides = overrides};
  TrainConfig config = parse_config<TrainConfig>(changed, options, sections);
  JsonSyntaxError error;
  const std::optional<JsonNode> root = parse_json(changed, JsonComments::kAllowed, &error);
  // Without an object there are no values to check.
  if (!root || root->kind != JsonNode::Kind::kObject) sections.throw_if_any(source);
  const Parsing parsing{options, config, problems, root->find("model") != nullptr};
  // The model first: it looks at what spans its fields only if nothing is wrong yet.
  resolve_model(parsing);
  parse_config<TrainConfig>(changed, options, problems);
  check_run(parsing);
  check_batches(parsing);
  check_schedule(parsing);
  check_precision(parsing);
  check_sample(parsing);
  check_launch(config.launch, problems);
  config.zero.resolve(problems);
  problems.throw_if_any(source);
  return config;
}

void check_world(const TrainConfig& config, int64_t world) {
  const int64_t batch = config.train.global_batch, micro = config.micro_batch(world);
  if (batch % (micro * world) == 0) return;
  std::string fits = batch % world == 0
                         ? fmt::format("a train.micro_batch that divides {}, or ", batch / world)
                         : std::string();
  throw Error(
      Code::kInvalidArgument,
      fmt::format("train.global_batch: {} sequences cannot be cut into micro-batches of {} on "
                  "each of {} ranks; {}a train.global_batch that is a multiple of {} would "
                  "fit",
                  batch, micro, world, fits, micro * world));
}

std::string document_train_config() {
  std::string text = document_config<TrainConfig>();
  for (const ModelEntry* entry : registered_models()) {
    text +=
        fmt::format("\nmodel, when \"name\" is \"{}\":\n{}", entry->name, entry->document("model"));
  }
  return text;
}

}  // namespace zpp

#include "tests/model/model_bench.h"

#include <nlohmann/json.hpp>

#include "kernels/adamw.h"
#include "kernels/elementwise.h"
#include "kernels/reduce.h"
#include "model/registry.h"
#include "tests/model/grad_check.h"

namespace zpp::test {

struct ModelBench::Moments {
  std::vector<Tensor> m, v;
  Tensor guard, sum_squares, loss;
};

HostRows HostRows::slice(int64_t begin, int64_t end) const {
  const auto part = [&](const std::vector<int32_t>& all) {
    return all.empty()
               ? all
               : std::vector<int32_t>(all.begin() + begin * length, all.begin() + end * length);
  };
  return {end - begin, length, part(tokens), part(targets), part(doc_start)};
}

int64_t HostRows::valid() const {
  int64_t count = 0;
  for (int32_t t : targets) count += t >= 0 ? 1 : 0;
  return count;
}

HostRows random_rows(int64_t rows, int64_t length, int64_t vocab, uint64_t seed) {
  HostRows out{rows, length, {}, {}, {}};
  const RngKey key{.seed = seed, .name_hash = hash_name("rows"), .offset = 0};
  for (int64_t i = 0; i < rows * length; ++i) {
    const auto word = [&](int64_t j) { return key.bits(static_cast<uint64_t>(3 * i + j)); };
    out.tokens.push_back(static_cast<int32_t>(word(0) % static_cast<uint64_t>(vocab)));
    out.targets.push_back(
        word(1) % 8 == 0 ? -1 : static_cast<int32_t>(word(2) % static_cast<uint64_t>(vocab)));
  }
  return out;
}

ModelBench::ModelBench(const std::string& config, const BenchOptions& options)
    : runtime_({.device = {}, .threads = options.threads}), table_(options.dtype) {
  const std::string name = nlohmann::json::parse(config).at("name");
  const ModelEntry* entry = find_model(name);
  if (entry == nullptr) throw Error(Code::kNotFound, "no model " + name + " in this test");
  model_ = entry->create(Scope(table_), config);
  hooks_ = std::make_unique<ResidentHooks>(table_, runtime_);
  for (const auto& unit : table_.units()) {
    for (const auto& p : unit->parameters()) {
      fill_initial(runtime_.compute(), *p, 0, in_unit(*p, false), options.seed);
    }
  }
}

ModelBench::~ModelBench() = default;

const Parameter& ModelBench::find(const std::string& name) const {
  const Parameter* p = table_.find(name);
  if (p == nullptr) throw Error(Code::kNotFound, "the model has no parameter " + name);
  return *p;
}

View ModelBench::in_unit(const Parameter& p, bool gradient) const {
  const View& flat = gradient ? p.unit().grads() : p.unit().weights();
  return flat.slice(0, p.offset(), p.offset() + p.numel());
}

void ModelBench::set_weight(const std::string& name, const std::vector<double>& values) {
  write(runtime_.compute(), values, in_unit(find(name), false));
}

std::vector<double> ModelBench::weight(const std::string& name) {
  return read(runtime_.compute(), in_unit(find(name), false));
}

std::vector<double> ModelBench::gradient(const std::string& name) {
  const Parameter& p = find(name);
  p.unit().finish_grads(runtime_.compute());
  return read(runtime_.compute(), in_unit(p, true));
}

std::vector<std::string> ModelBench::names() const {
  std::vector<std::string> all;
  for (const auto& unit : table_.units()) {
    for (const auto& p : unit->parameters()) all.push_back(p->name());
  }
  return all;
}

std::vector<double> ModelBench::gradients() {
  std::vector<double> all;
  for (const std::string& name : names()) {
    for (double g : gradient(name)) all.push_back(g);
  }
  return all;
}

void ModelBench::restart() {
  for (const auto& unit : table_.units()) unit->restart_grads();
}

Batch ModelBench::upload(const HostRows& rows) {
  const auto ids = [&](const std::vector<int32_t>& values) {
    if (values.empty()) return Tensor();
    Tensor t = runtime_.tensor({rows.rows, rows.length}, DType::kI32);
    copy_from_host(runtime_.compute(), values, t.view());
    return t;
  };
  return {.tokens = ids(rows.tokens),
          .targets = ids(rows.targets),
          .doc_start = ids(rows.doc_start),
          .valid = rows.valid()};
}

double ModelBench::accumulate(const HostRows& rows, const TapeOptions& options, double scale) {
  const Batch batch = upload(rows);
  TapeOptions with_documents = options;
  with_documents.doc_start = batch.doc_start.view();
  with_documents.samples = rows.rows;
  Tape tape(runtime_.pool(), runtime_.compute(), *hooks_, with_documents);
  const Value loss = model_->run_loss(tape, batch);
  tape.backward(loss, scale);
  return read(runtime_.compute(), loss.view()).at(0);
}

double ModelBench::run(const HostRows& rows, const TapeOptions& options) {
  restart();
  return accumulate(rows, options);
}

double ModelBench::evaluate(const HostRows& rows) {
  const Batch batch = upload(rows);
  Tape tape(runtime_.pool(), runtime_.compute(), *hooks_,
            {.training = false, .samples = rows.rows, .doc_start = batch.doc_start.view()});
  return read(runtime_.compute(), model_->run_loss(tape, batch).view()).at(0);
}

std::vector<double> ModelBench::logits(const HostRows& rows) {
  const Batch batch = upload(rows);
  Tape tape(runtime_.pool(), runtime_.compute(), *hooks_,
            {.training = false, .samples = rows.rows, .doc_start = batch.doc_start.view()});
  return read(runtime_.compute(), model_->run_logits(tape, batch).view());
}

void ModelBench::update(const Update& update, double loss) {
  Stream& stream = runtime_.compute();
  const auto zeros = [&](int64_t count, DType dtype) {
    Tensor t = runtime_.tensor({count}, dtype);
    kernels::fill(stream, t.view(), 0.0);
    return t;
  };
  if (!moments_) {
    moments_ = std::make_unique<Moments>();
    for (const auto& unit : table_.units()) {
      moments_->m.push_back(zeros(unit->flat_numel(), DType::kF32));
      moments_->v.push_back(zeros(unit->flat_numel(), DType::kF32));
    }
    moments_->guard = zeros(kernels::kGuardSize, DType::kF64);
    moments_->sum_squares = zeros(1, DType::kF64);
    moments_->loss = zeros(1, DType::kF32);
  }
  kernels::fill(stream, moments_->sum_squares.view(), 0.0);
  kernels::fill(stream, moments_->loss.view(), loss);
  for (const auto& unit : table_.units()) {
    unit->finish_grads(stream);
    kernels::sum_squares(stream, unit->grads(), {moments_->sum_squares.view(), true});
  }
  kernels::step_guard(stream, moments_->sum_squares.view(), moments_->loss.view(), update.clip,
                      moments_->guard.view());
  for (size_t i = 0; i < table_.units().size(); ++i) {
    for (const auto& p : table_.units()[i]->parameters()) {
      const auto part = [&](const Tensor& t) {
        return t.view().slice(0, p->offset(), p->offset() + p->numel());
      };
      kernels::adamw(stream, {.master = in_unit(*p, false),
                              .m = part(moments_->m[i]),
                              .v = part(moments_->v[i]),
                              .grad = in_unit(*p, true),
                              .weights = {},
                              .guard = moments_->guard.view(),
                              .lr = update.lr,
                              .beta1 = update.beta1,
                              .beta2 = update.beta2,
                              .eps = update.eps,
                              .weight_decay = p->shape().rank() >= 2 ? update.weight_decay : 0.0});
    }
  }
}

}  // namespace zpp::test

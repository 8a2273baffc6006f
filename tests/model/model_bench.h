// A whole model on one device, for tests: weights by name, losses, gradients, and updates by the
// optimizer's kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/runtime.h"
#include "model/model.h"
#include "model/nn/resident.h"

namespace zpp::test {

/// A batch on the host.
struct HostRows {
  int64_t rows = 0, length = 0;
  std::vector<int32_t> tokens, targets, doc_start;

  /// Rows [begin, end).
  HostRows slice(int64_t begin, int64_t end) const;
  int64_t valid() const;
};

/// Tokens and targets below `vocab`, some targets ignored.
HostRows random_rows(int64_t rows, int64_t length, int64_t vocab, uint64_t seed);

struct BenchOptions {
  DType dtype = DType::kF32;
  int threads = 2;
  uint64_t seed = 1;  // of the initial weights
};

class ModelBench {
 public:
  /// `config` is the model section of a configuration, with "name". Weights start as the model
  /// wants them.
  explicit ModelBench(const std::string& config, const BenchOptions& options = {});
  ~ModelBench();

  /// Errors: kNotFound when the model has no such parameter
  void set_weight(const std::string& name, const std::vector<double>& values);
  std::vector<double> weight(const std::string& name);
  std::vector<double> gradient(const std::string& name);
  /// Names of all parameters, unit by unit.
  std::vector<std::string> names() const;
  /// All gradients, one after the other.
  std::vector<double> gradients();

  /// Gradients start again.
  void restart();
  /// Forward and backward of one micro-batch, its gradients added with weight `scale`. Returns its
  /// mean loss.
  double accumulate(const HostRows& rows, const TapeOptions& options, double scale = 1.0);
  /// restart() and accumulate().
  double run(const HostRows& rows, const TapeOptions& options = {});
  /// The loss without gradients.
  double evaluate(const HostRows& rows);
  /// (rows, vocab) logits of the token after the last.
  std::vector<double> logits(const HostRows& rows);

  struct Update {
    double lr = 1e-3, beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1, clip = 1.0;
  };
  /// One step of AdamW with the gradients of the last run; decay on matrices only. f32 models only.
  void update(const Update& update, double loss);

  Model& model() { return *model_; }
  ParameterTable& table() { return table_; }
  Runtime& runtime() { return runtime_; }
  ResidentHooks& hooks() { return *hooks_; }

 private:
  struct Moments;

  Batch upload(const HostRows& rows);
  const Parameter& find(const std::string& name) const;
  View in_unit(const Parameter& p, bool gradient) const;

  Runtime runtime_;
  ParameterTable table_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<ResidentHooks> hooks_;
  std::unique_ptr<Moments> moments_;
};

}  // namespace zpp::test

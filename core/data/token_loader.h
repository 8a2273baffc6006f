// Samples for training and evaluation from files of tokens.
//
// A file is cut into windows of context + 1 tokens that overlap by one token: `context` inputs, and
// the same shifted by one as targets. Sample i of a run is a pure function of (files, seed,
// context, i): the only state of a run is the number of samples it has used, and neither the number
// of ranks nor the micro-batch size changes the order.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/data/data_config.h"
#include "core/data/sample_schedule.h"
#include "core/data/token_file.h"

namespace zpp {

/// Samples [first_sample, first_sample + samples) in host memory, row-major (samples, length).
struct HostBatch {
  int64_t first_sample = 0;
  int64_t samples = 0, length = 0;
  std::vector<int32_t> tokens;
  std::vector<int32_t> targets;  // -1: ignored
  std::vector<int32_t>
      doc_start;      // where in its row the token's document begins; empty without a document mask
  int64_t valid = 0;  // targets that are not ignored
};

class TokenLoader {
 public:
  struct Options {
    int64_t context = 0;         // inputs per sample
    int64_t vocab = 0;           // ids must be below; 0: what the files say
    uint64_t seed = 0;           // of the order
    bool document_mask = false;  // fill doc_start, and ignore targets that lie in the next document
  };

  /// Maps all files. Weights for all of them or for none; none: every window once per epoch, in one
  /// permutation.
  /// Errors:  as TokenFile; kInvalidArgument for an empty list, a file shorter than a window,
  ///          weights for some files only, or a document mask over a file that does not say where
  ///          documents end.
  TokenLoader(const std::vector<DataSource>& sources, const Options& options);

  /// Windows of all files: samples of an epoch without weights.
  int64_t windows() const { return first_window_.back(); }
  const std::vector<TokenFile>& files() const { return files_; }

  /// Samples of the shuffled, endless order. Thread-safe.
  /// Errors: kInvalidArgument for a token outside the vocabulary.
  HostBatch batch(int64_t first_sample, int64_t count) const;
  /// Windows in file order, for a fixed evaluation set.
  /// Errors:  kInvalidArgument beyond windows().
  HostBatch eval_batch(int64_t first_window, int64_t count) const;

 private:
  struct Window {
    int64_t file, index;
  };
  void open(const std::vector<DataSource>& sources);
  Window window_at(int64_t global_index) const;
  Window sample_window(int64_t sample) const;
  HostBatch make_batch(int64_t first, int64_t count) const;
  void fill(HostBatch& batch, int64_t row, Window window) const;
  void mask_documents(HostBatch& batch, int64_t row, Window window) const;

  Options options_;
  std::vector<TokenFile> files_;
  std::vector<int64_t> first_window_;       // of each file in the row of all windows, and the total
  std::optional<SampleSchedule> schedule_;  // only with weights
};

}  // namespace zpp

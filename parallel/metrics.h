// What a run reports: metrics.jsonl for programs, one aligned line per logged step for people.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "parallel/engine.h"

namespace zpp {

/// A logged step.
struct TrainRecord {
  int64_t step = 0;    // done so far, this one included
  int64_t tokens = 0;  // seen so far
  StepStats stats;
  int64_t skipped = 0;      // steps skipped since the last record
  double step_s = 0;        // mean duration of a step since the last record
  double tokens_per_s = 0;  // over the same steps
  double mfu = 0;           // share of the measured GEMM peak
  int64_t peak_bytes = 0;   // held by the memory pool
  // Since the last record: sent by this rank's node to others, by this rank inside its node, time
  // that computing stood still for communication, and the share of communication that it did not.
  int64_t inter_node_bytes = 0;
  int64_t intra_node_bytes = 0;
  double exposed_comm_s = 0;
  std::optional<double> overlap = {};  // absent without communication
  double seconds_left = 0;             // until the last step
};

struct EvalRecord {
  int64_t step = 0;
  int64_t tokens = 0;
  double val_loss = 0;  // nats per token
  double eval_s = 0;
};

/// Appends to a metrics.jsonl. Every line is written in one piece, so that a reader never sees half
/// of one, whenever the process ends.
class MetricsFile {
 public:
  /// Errors: kIo if the file cannot be opened
  explicit MetricsFile(const std::filesystem::path& path);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;

  void train(const TrainRecord& record);
  void eval(const EvalRecord& record);
  /// Something that happened: `event` is one word, `text` a sentence.
  void event(int64_t step, int64_t tokens, std::string_view event, std::string_view text);

 private:
  void write_line(std::string line);

  std::filesystem::path path_;
  int fd_ = -1;
};

/// "step   120/2000  loss 2.3456  lr 3.00e-04  norm  1.234  ...", as wide in every step.
std::string console_line(const TrainRecord& record, int64_t total_steps);

/// "[#######             ]  35 %  step 700/2000  loss 1.8312  3 m 12 s left".
std::string progress_line(const TrainRecord& record, int64_t total_steps);

}  // namespace zpp

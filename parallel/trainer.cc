#include "parallel/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "core/files.h"
#include "core/human.h"
#include "core/version.h"
#include "kernels/gemm.h"
#include "parallel/metrics.h"
#include "parallel/session.h"

namespace zpp {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Steps and seconds since the last record, and a slower average for the time that is left.
class Pace {
 public:
  void step(double seconds, int64_t tokens) {
    ++steps_;
    seconds_ += seconds;
    tokens_ += tokens;
    // The first step pays for memory and compiled kernels.
    average_ = count_ <= 1 ? seconds : 0.95 * average_ + 0.05 * seconds;
    ++count_;
  }
  double step_s() const { return seconds_ / static_cast<double>(std::max<int64_t>(steps_, 1)); }
  double tokens_per_s() const {
    return seconds_ > 0 ? static_cast<double>(tokens_) / seconds_ : 0.0;
  }
  double seconds_for(int64_t steps) const { return average_ * static_cast<double>(steps); }
  void restart() {
    steps_ = tokens_ = 0;
    seconds_ = 0;
  }

 private:
  int64_t steps_ = 0, tokens_ = 0, count_ = 0;
  double seconds_ = 0, average_ = 0;
};

class Trainer {
 public:
  Trainer(const TrainConfig& config, const TrainData& data, const RunDirectory& run, Log& log,
          const TrainerOptions& options, const Mesh* mesh)
      : config_(config),
        data_(data),
        run_(run),
        log_(log),
        options_(options),
        mesh_(mesh),
        rank_(mesh == nullptr ? 0 : mesh->grads.world().rank()),
        metrics_(rank_ == 0 ? std::make_unique<MetricsFile>(run.metrics_file()) : nullptr),
        runtime_(runtime_options(config, /*dry=*/false)) {}

  TrainResult run() {
    start();
    stopping_ = engine_->any_rank(options_.stop_requested());
    if (config_.train.eval_every > 0 && !stopping_) evaluate();
    while (step_ < config_.train.steps && bad_in_a_row_ < config_.train.max_bad_steps &&
           !stopping_) {
      train_one();
      if (stopping_) break;
      const bool last = step_ == config_.train.steps;
      if (config_.train.eval_every > 0 && (last || step_ % config_.train.eval_every == 0)) {
        evaluate();
      }
    }
    show_progress("");
    finish();
    return result_;
  }

 private:
  void start() {
    if (!run_.kept_metrics.empty()) {
      event("kept", fmt::format("metrics of an earlier run in {} are now {}", run_.dir.string(),
                                run_.kept_metrics));
    }
    peak_flops_ = measure_peak_flops(runtime_, config_.compute());
    engine_ = make_engine(runtime_, config_, mesh_,
                          [this](const std::string& text) { event("order", text); });
    runtime_.compute().synchronize();
    event("started",
          fmt::format(
              "{}; {}{} parameters in {}; {} threads, {} reach {}FLOP/s in {} products by {}; "
              "{} sequences of {} tokens a step in micro-batches of {}",
              version_text(), ranks_text(), with_commas(engine_->parameters().numel()),
              config_.precision.compute, runtime_.workers().threads(),
              runtime_.workers().threads() == 1 ? "which" : "which together",
              human_number(peak_flops_), config_.precision.compute,
              kernels::gemm_path(runtime_.compute(), config_.compute()), config_.train.global_batch,
              config_.facts.context, config_.micro_batch(engine_->world())));
  }

  /// "8 ranks in groups of 4, zero3; ", nothing for a single process.
  std::string ranks_text() const {
    if (mesh_ == nullptr) return {};
    std::string groups;
    for (int level = 1; level < mesh_->topology.levels(); ++level) {
      groups += fmt::format("{} {}", groups.empty() ? " in groups of" : ",",
                            mesh_->topology.group_size(level));
    }
    return fmt::format("rank {} of {}{}, {}; ", rank_, engine_->world(), groups,
                       config_.zero.preset);
  }

  void train_one() {
    const Clock::time_point begin = Clock::now();
    // Ranks have to stop after the same step, so they tell each other in it.
    const bool alone = engine_->world() == 1;
    const StepStats stats =
        run_step(*engine_, config_, step_, data_.train, !alone && options_.stop_requested());
    ++step_;
    tokens_ += stats.tokens;
    skipped_ += stats.skipped ? 1 : 0;
    bad_in_a_row_ = stats.skipped ? bad_in_a_row_ + 1 : 0;
    pace_.step(seconds_since(begin), config_.tokens_per_step());

    // Asked once per step, so that the step that is the last one is also reported.
    stopping_ = step_ < config_.train.steps && (alone ? options_.stop_requested() : stats.stop);
    const bool last = step_ == config_.train.steps || stopping_;
    TrainRecord record = make_record(stats);
    if (step_ == 1 || last || step_ % config_.log.every == 0) {
      add_traffic(record);
      if (metrics_) metrics_->train(record);
      if (rank_ == 0) info(console_line(record, config_.train.steps));
      pace_.restart();
      skipped_ = 0;
    }
    if (stats.skipped) {
      event("skipped", fmt::format("step {} changes nothing: loss {}, gradient norm {}", step_,
                                   stats.loss, stats.grad_norm));
    }
    show_progress(progress_line(record, config_.train.steps));
  }

  TrainRecord make_record(const StepStats& stats) {
    const double flops =
        engine_->model().flops_per_token() * pace_.tokens_per_s() / engine_->world();
    return {.step = step_,
            .tokens = tokens_,
            .stats = stats,
            .skipped = skipped_,
            .step_s = pace_.step_s(),
            .tokens_per_s = pace_.tokens_per_s(),
            .mfu = peak_flops_ > 0 ? flops / peak_flops_ : 0.0,
            .peak_bytes = runtime_.pool().stats().held_bytes,
            .seconds_left = pace_.seconds_for(config_.train.steps - step_)};
  }

  /// What went over the links since the last record. All ranks call it.
  void add_traffic(TrainRecord& record) {
    const CommStats now = engine_->comm_stats();
    int64_t intra = 0, inter = 0;
    for (size_t link = 1; link < now.sent_bytes.size(); ++link) {
      const int64_t before = link < traffic_.sent_bytes.size() ? traffic_.sent_bytes[link] : 0;
      // Ranks of a world that is one node are near each other.
      (link == 1 ? intra : inter) += now.sent_bytes[link] - before;
    }
    record.intra_node_bytes = intra;
    record.inter_node_bytes = engine_->sum_over_node(inter);
    record.exposed_comm_s = now.exposed_s - traffic_.exposed_s;
    const double seconds = now.seconds - traffic_.seconds;
    if (seconds > 0) record.overlap = std::max(0.0, 1.0 - record.exposed_comm_s / seconds);
    traffic_ = now;
  }

  void evaluate() {
    const Clock::time_point begin = Clock::now();
    const int64_t windows =
        std::min(config_.train.eval_batches * config_.train.global_batch, data_.val_windows);
    const EvalRecord record{.step = step_,
                            .tokens = tokens_,
                            .val_loss = run_evaluation(*engine_, config_, windows, data_.val),
                            .eval_s = seconds_since(begin)};
    result_.val_loss = record.val_loss;
    if (metrics_) metrics_->eval(record);
    if (rank_ == 0)
      info(fmt::format("step {:>{}}/{}  val loss {:.5g} over {} windows", step_,
                       std::to_string(config_.train.steps).size(), config_.train.steps,
                       record.val_loss, windows));
  }

  void finish() {
    result_.steps = step_;
    if (bad_in_a_row_ >= config_.train.max_bad_steps) {
      result_.outcome = TrainOutcome::kFailed;
      event("failed",
            fmt::format("{} steps in a row were not finite: {}; a lower optimizer.lr or a longer "
                        "schedule.warmup_steps usually helps",
                        bad_in_a_row_, engine_->describe_nonfinite()));
      return;
    }
    if (stopping_) {
      result_.outcome = TrainOutcome::kStopped;
      event("stopped",
            fmt::format("asked to stop after step {} of {}", step_, config_.train.steps));
      return;
    }
    if (config_.sample.tokens > 0) {
      // All ranks of a model that is spread over them are needed for it.
      result_.sample = run_sample(*engine_, config_, options_.stop_requested);
      if (rank_ == 0) write_file_atomic(run_.sample_file(), result_.sample + "\n");
    }
    event("done", fmt::format("{} steps, {} tokens", step_, with_commas(tokens_)));
  }

  void event(std::string_view name, const std::string& text) {
    if (metrics_) metrics_->event(step_, tokens_, name, text);
    show_progress("");
    log_.write(name == "failed"    ? LogLevel::kError
               : name == "skipped" ? LogLevel::kWarning
                                   : LogLevel::kInfo,
               text);
  }
  void info(const std::string& text) {
    show_progress("");
    log_.info(text);
  }
  void show_progress(std::string_view line) {
    if (rank_ == 0 && options_.show_progress) options_.show_progress(line);
  }

  const TrainConfig& config_;
  const TrainData& data_;
  const RunDirectory& run_;
  Log& log_;
  const TrainerOptions& options_;
  const Mesh* const mesh_;
  const int rank_;
  const std::unique_ptr<MetricsFile> metrics_;  // rank 0's
  Runtime runtime_;
  double peak_flops_ = 0;
  std::unique_ptr<Engine> engine_;
  Pace pace_;
  int64_t step_ = 0, tokens_ = 0;
  int64_t skipped_ = 0;  // since the last record
  int64_t bad_in_a_row_ = 0;
  bool stopping_ = false;
  CommStats traffic_;  // at the last record
  TrainResult result_;
};

}  // namespace

TrainResult train(const TrainConfig& config, const TrainData& data, const RunDirectory& run,
                  Log& log, const TrainerOptions& options, const Mesh* mesh) {
  // Also what goes wrong outside of the engine, such as a file that cannot be read, ends the others.
  const auto abort = [mesh](const Error& why) {
    if (mesh == nullptr) return;
    mesh->weights.world().abort(why);
    mesh->grads.world().abort(why);
  };
  std::optional<Trainer> trainer;  // outlives the handlers: what it has enqueued needs it
  try {
    trainer.emplace(config, data, run, log, options, mesh);
    return trainer->run();
  } catch (const Error& error) {
    abort(error);
    throw;
  } catch (const std::exception& error) {
    abort(Error(Code::kInternal, error.what()));
    throw;
  }
}

}  // namespace zpp

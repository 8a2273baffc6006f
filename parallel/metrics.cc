#include "parallel/metrics.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>

#include "core/human.h"
#include "core/json_tree.h"

namespace zpp {
namespace {

/// Nine significant digits; JSON has no word for what is not finite.
std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.9g}", value) : "null";
}

}  // namespace

MetricsFile::MetricsFile(const std::filesystem::path& path) : path_(path) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw Error(Code::kIo, fmt::format("{}: cannot be opened for writing: {}", path.string(),
                                       std::strerror(errno)));
  }
}

MetricsFile::~MetricsFile() { ::close(fd_); }

void MetricsFile::train(const TrainRecord& r) {
  write_line(fmt::format(
      R"({{"kind":"train","step":{},"tokens":{},"loss":{},"lr":{},"grad_norm":{},)"
      R"("grad_norm_clipped":{},"skipped":{},"step_s":{},"tokens_per_s":{},"mfu":{},)"
      R"("peak_bytes":{},"inter_node_bytes":{},"intra_node_bytes":{},)"
      R"("exposed_comm_s":{},"overlap":{}}})",
      r.step, r.tokens, number(r.stats.loss), number(r.stats.lr), number(r.stats.grad_norm),
      number(r.stats.grad_norm_clipped), r.skipped, number(r.step_s), number(r.tokens_per_s),
      number(r.mfu), r.peak_bytes, r.inter_node_bytes, r.intra_node_bytes, number(r.exposed_comm_s),
      r.overlap ? number(*r.overlap) : "null"));
}

void MetricsFile::eval(const EvalRecord& r) {
  write_line(fmt::format(R"({{"kind":"eval","step":{},"tokens":{},"val_loss":{},"eval_s":{}}})",
                         r.step, r.tokens, number(r.val_loss), number(r.eval_s)));
}

void MetricsFile::event(int64_t step, int64_t tokens, std::string_view event,
                        std::string_view text) {
  write_line(fmt::format(R"({{"kind":"event","step":{},"tokens":{},"event":{},"text":{}}})", step,
                         tokens, json_quote(event), json_quote(text)));
}

void MetricsFile::write_line(std::string line) {
  line += '\n';
  const off_t start = ::lseek(fd_, 0, SEEK_END);
  size_t done = 0;
  while (done < line.size()) {
    const ssize_t n = ::write(fd_, line.data() + done, line.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      const int error = errno;
      // Readers expect whole lines, whatever became of the last.
      if (::ftruncate(fd_, start) != 0) errno = error;
      throw Error(Code::kIo,
                  fmt::format("{}: cannot be written: {}", path_.string(), std::strerror(error)));
    }
    done += static_cast<size_t>(n);
  }
}

std::string console_line(const TrainRecord& r, int64_t total_steps) {
  const size_t width = std::to_string(total_steps).size();
  return fmt::format(
      "step {:>{}}/{}  loss {:<8.5g}  lr {:.2e}  norm {:<7.3g}  {:>9} tok/s  mfu {:4.1f} %  mem "
      "{:>8}  left {}",
      r.step, width, total_steps, r.stats.loss, r.stats.lr, r.stats.grad_norm,
      with_commas(std::llround(r.tokens_per_s)), 100.0 * r.mfu, human_bytes(r.peak_bytes),
      human_seconds(r.seconds_left));
}

std::string progress_line(const TrainRecord& r, int64_t total_steps) {
  constexpr int64_t kWidth = 24;
  const int64_t filled = kWidth * r.step / total_steps;
  return fmt::format("[{:<{}}] {:3} %  step {}/{}  loss {:.4f}  {} left",
                     std::string(static_cast<size_t>(filled), '#'), kWidth,
                     100 * r.step / total_steps, r.step, total_steps, r.stats.loss,
                     human_seconds(r.seconds_left));
}

}  // namespace zpp

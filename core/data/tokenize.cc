#include "core/data/tokenize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>

#include "core/data/token_writer.h"
#include "core/data/tokenizer.h"
#include "core/error.h"

namespace zpp {
namespace {

constexpr int64_t kBlockBytes = 16 << 10;

// Finds where a text without documents may be cut: at the first blank line once a block has its
// size, at any line end when four times that has brought none, and between two characters when even
// lines are missing.
class BlockCutter {
 public:
  struct Cut {
    size_t bytes;
    bool ends;  // the block, with the last of them
  };

  /// How much of `text` belongs to the present block.
  Cut take(std::string_view text) {
    size_t n = 0;
    if (size_ < kBlockBytes) {
      n = std::min(text.size(), static_cast<size_t>(kBlockBytes - size_));
      size_ += static_cast<int64_t>(n);
    }
    for (; n < text.size(); ++n, ++size_) {
      if (may_cut_before(text[n])) {
        *this = BlockCutter();
        return {n, true};
      }
      if (text[n] == '\n')
        ++newlines_;
      else if (text[n] != '\r')
        newlines_ = 0;
    }
    return {n, false};
  }

 private:
  bool may_cut_before(char next) const {
    if (newlines_ >= 2 || (newlines_ == 1 && size_ >= 4 * kBlockBytes)) return true;
    const bool inside_character = (static_cast<unsigned char>(next) & 0xc0) == 0x80;
    return size_ >= 64 * kBlockBytes && !inside_character;
  }

  int64_t size_ = 0, newlines_ = 0;
};

// Says which of a row of units are held out: evenly spread, round(n * fraction) of the first n.
class Holdout {
 public:
  explicit Holdout(double fraction) : fraction_(fraction) {}
  bool next() {
    const double before = std::floor(static_cast<double>(units_) * fraction_ + 0.5);
    ++units_;
    return std::floor(static_cast<double>(units_) * fraction_ + 0.5) > before;
  }

 private:
  const double fraction_;
  int64_t units_ = 0;
};

class Tokenizing {
 public:
  explicit Tokenizing(const TokenizeOptions& options)
      : options_(options),
        holdout_(options.val_fraction),
        train_(options.output, writer_options()) {
    if (!options.val_output.empty()) val_.emplace(options.val_output, writer_options());
  }

  void run(const std::filesystem::path& input) {
    const bool by_document = !val_ || has_documents(input, options_.text);
    read_ += read_documents(input, options_.text, [&](std::string_view piece, bool ends) {
      if (by_document)
        write(piece);
      else
        write_blocks(piece);
      if (ends) {
        end_document();
        cutter_ = BlockCutter();
        block_ended_ = true;
      }
      if (options_.on_progress) report_progress(static_cast<int64_t>(piece.size()));
    });
  }

  TokenizeReport finish() {
    if (train_.tokens() == 0 && (!val_ || val_->tokens() == 0))
      throw Error(Code::kInvalidArgument, "tokenize: the input has no text");
    if (val_ && (val_->tokens() == 0 || train_.tokens() == 0)) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("tokenize: the input is too small to hold out a share of {} of its "
                              "documents or blocks "
                              "of {} KiB; give a file of its own for validation",
                              options_.val_fraction, kBlockBytes >> 10));
    }
    train_.commit();
    if (val_) val_->commit();
    TokenizeReport report{
        .bytes = read_, .train = {train_.tokens(), train_.documents()}, .val = {}};
    if (val_) report.val = {val_->tokens(), val_->documents()};
    return report;
  }

 private:
  static TokenWriter::Options writer_options() {
    return {.vocab = ByteTokenizer::kVocab,
            .eot = ByteTokenizer::kEndOfText,
            .tokenizer = std::string(ByteTokenizer::kName)};
  }

  void write(std::string_view text) {
    if (text.empty()) return;
    if (writer_ == nullptr) choose();
    ids_.resize(text.size());
    std::transform(text.begin(), text.end(), ids_.begin(),
                   [](char c) { return static_cast<unsigned char>(c); });
    writer_->write(ids_);
  }

  void write_blocks(std::string_view text) {
    while (!text.empty()) {
      if (block_ended_) choose();
      const BlockCutter::Cut cut = cutter_.take(text);
      write(text.substr(0, cut.bytes));
      text.remove_prefix(cut.bytes);
      block_ended_ = cut.ends;
    }
  }

  // Where the next document or block goes. A change of sides cuts the text, which ends a document
  // on this side.
  void choose() {
    TokenWriter* next = val_ && holdout_.next() ? &*val_ : &train_;
    block_ended_ = false;
    if (writer_ != nullptr && next != writer_) end_document();
    writer_ = next;
  }

  void end_document() {
    if (writer_ == nullptr) return;
    writer_->write(std::array{ByteTokenizer::kEndOfText});
    writer_->count_document();
    writer_ = nullptr;
  }

  void report_progress(int64_t bytes) {
    constexpr int64_t kStep = 1 << 20;
    const int64_t before = progress_;
    progress_ += bytes;
    if (progress_ / kStep != before / kStep) options_.on_progress(progress_);
  }

  const TokenizeOptions& options_;
  Holdout holdout_;
  BlockCutter cutter_;
  bool block_ended_ = true;
  TokenWriter train_;
  std::optional<TokenWriter> val_;
  TokenWriter* writer_ = nullptr;  // of the document that is open
  std::vector<int32_t> ids_;
  int64_t read_ = 0, progress_ = 0;
};

bool same_file(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code error;
  return a == b || std::filesystem::equivalent(a, b, error);
}

void check(const TokenizeOptions& options) {
  const auto refuse = [](const std::string& text) {
    throw Error(Code::kInvalidArgument, "tokenize: " + text);
  };
  if (options.inputs.empty()) refuse("no input is given");
  if (options.output.empty()) refuse("no output is given");
  if (!(options.val_fraction >= 0 && options.val_fraction < 1))
    refuse(
        fmt::format("the held-out share is {}, expected 0 to less than 1", options.val_fraction));
  if (options.val_output.empty() != (options.val_fraction == 0))
    refuse("a held-out share and a file for it go together: --val-fraction with --val-output");
  if (!options.val_output.empty() && same_file(options.output, options.val_output))
    refuse(fmt::format("{} is given for both outputs", options.output.string()));
  for (const auto& input : options.inputs) {
    if (input == "-") continue;
    if (same_file(input, options.output) ||
        (!options.val_output.empty() && same_file(input, options.val_output)))
      refuse(fmt::format("{} is both input and output", input.string()));
  }
}

}  // namespace

TokenizeReport tokenize(const TokenizeOptions& options) {
  check(options);
  Tokenizing job(options);
  for (const auto& input : options.inputs) job.run(input);
  return job.finish();
}

std::string unescape(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    const char c = ++i < text.size() ? text[i] : '\0';
    const auto is_hex = [&](size_t at) {
      return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at]));
    };
    if (c == 'n')
      out += '\n';
    else if (c == 't')
      out += '\t';
    else if (c == 'r')
      out += '\r';
    else if (c == '\\')
      out += '\\';
    else if (c == 'x' && is_hex(i + 1) && is_hex(i + 2)) {
      out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else
      throw Error(
          Code::kInvalidArgument,
          fmt::format("\"{}\": after a backslash n, t, r, xHH or another backslash is expected",
                      text));
  }
  return out;
}

}  // namespace zpp

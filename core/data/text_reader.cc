#include "core/data/text_reader.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "core/error.h"
#include "core/json_tree.h"

namespace zpp {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
constexpr size_t kMaxLineBytes = size_t{1} << 30;

class ByteSource {
 public:
  explicit ByteSource(const std::filesystem::path& path)
      : name_(path == "-" ? "standard input" : path.string()) {
    if (path == "-") return;
    fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd_ < 0) fail("open", errno == ENOENT ? Code::kNotFound : Code::kIo);
  }
  ~ByteSource() {
    if (fd_ != STDIN_FILENO) ::close(fd_);
  }
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;

  /// The next bytes, empty at the end; valid until the next call.
  std::string_view next() {
    buffer_.resize(kChunkBytes);
    while (true) {
      const ssize_t n = ::read(fd_, buffer_.data(), buffer_.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail("read", Code::kIo);
      const std::string_view chunk(buffer_.data(), static_cast<size_t>(n));
      if (total_ == 0 && chunk.starts_with("\x1f\x8b")) {
        throw Error(Code::kInvalidArgument,
                    fmt::format("{}: is compressed: zcat FILE | zpp-data tokenize - ...", name_));
      }
      total_ += n;
      return chunk;
    }
  }
  int64_t total() const { return total_; }
  const std::string& name() const { return name_; }

 private:
  [[noreturn]] void fail(const char* what, Code code) const {
    throw Error(code, fmt::format("{}: cannot {}: {}", name_, what,
                                  std::generic_category().message(errno)));
  }

  const std::string name_;
  int fd_ = STDIN_FILENO;
  int64_t total_ = 0;
  std::string buffer_;
};

// Passes pieces on, without documents that have no text at all.
class Documents {
 public:
  explicit Documents(const OnText& on_text) : on_text_(on_text) {}
  void piece(std::string_view text) {
    if (text.empty()) return;
    open_ = true;
    on_text_(text, false);
  }
  void end() {
    if (open_) on_text_({}, true);
    open_ = false;
  }

 private:
  const OnText& on_text_;
  bool open_ = false;
};

void read_text(ByteSource& source, const std::string& separator, Documents& documents) {
  std::string pending;  // begins within a document; may end in the first bytes of a separator
  for (std::string_view chunk = source.next(); !chunk.empty(); chunk = source.next()) {
    if (separator.empty()) {
      documents.piece(chunk);
      continue;
    }
    pending += chunk;
    size_t begin = 0;
    for (size_t at; (at = pending.find(separator, begin)) != std::string::npos;
         begin = at + separator.size()) {
      documents.piece(std::string_view(pending).substr(begin, at - begin));
      documents.end();
    }
    const size_t keep = std::min(pending.size() - begin, separator.size() - 1);
    documents.piece(std::string_view(pending).substr(begin, pending.size() - begin - keep));
    pending.erase(0, pending.size() - keep);
  }
  documents.piece(pending);
  documents.end();
}

void read_line(std::string_view line, int64_t number, const ByteSource& source,
               const std::string& key, Documents& documents) {
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
  const auto bad = [&](const std::string& what) {
    throw Error(Code::kInvalidArgument,
                fmt::format("{}: line {}: {}", source.name(), number, what));
  };
  JsonSyntaxError error;
  const std::optional<JsonNode> node = parse_json(line, JsonComments::kRefused, &error);
  if (!node) bad(fmt::format("column {}: {}", error.column, error.text));
  if (node->kind != JsonNode::Kind::kObject) bad("expected a JSON object");
  const JsonNode* text = node->find(key);
  if (text == nullptr) {
    std::string keys;
    for (const auto& [name, value] : node->members) keys += (keys.empty() ? "" : ", ") + name;
    bad(fmt::format(
        "no \"{}\" in the object (it has: {}); --text-key names the one that holds the text", key,
        keys));
  }
  if (text->kind != JsonNode::Kind::kString) bad(fmt::format("\"{}\" is not a text", key));
  documents.piece(text->text);
  documents.end();
}

void read_jsonl(ByteSource& source, const std::string& key, Documents& documents) {
  std::string pending;
  int64_t number = 0;
  for (std::string_view chunk = source.next(); !chunk.empty(); chunk = source.next()) {
    size_t begin = 0;
    for (size_t at; (at = chunk.find('\n', begin)) != std::string_view::npos; begin = at + 1) {
      pending += chunk.substr(begin, at - begin);
      read_line(pending, ++number, source, key, documents);
      pending.clear();
    }
    pending += chunk.substr(begin);
    if (pending.size() > kMaxLineBytes) {
      throw Error(
          Code::kInvalidArgument,
          fmt::format("{}: line {} is longer than 1 GiB: is this JSON with one object a line?",
                      source.name(), number + 1));
    }
  }
  read_line(pending, ++number, source, key, documents);
}

bool is_jsonl(const std::filesystem::path& path, const TextOptions& options) {
  if (options.format != "auto") return options.format == "jsonl";
  return path.extension() == ".jsonl" || path.extension() == ".ndjson";
}

}  // namespace

bool has_documents(const std::filesystem::path& path, const TextOptions& options) {
  return is_jsonl(path, options) || !options.separator.empty();
}

int64_t read_documents(const std::filesystem::path& path, const TextOptions& options,
                       const OnText& on_text) {
  if (options.format != "auto" && options.format != "text" && options.format != "jsonl") {
    throw Error(
        Code::kInvalidArgument,
        fmt::format("unknown input format \"{}\", expected auto, text or jsonl", options.format));
  }
  ByteSource source(path);
  Documents documents(on_text);
  if (is_jsonl(path, options))
    read_jsonl(source, options.text_key, documents);
  else
    read_text(source, options.separator, documents);
  return source.total();
}

}  // namespace zpp

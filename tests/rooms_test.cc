// The rules of the house, checked on the sources as they lie in the tree: which room may include
// which room and which library, what no room may call, and what the top level may hold. Bazel's
// visibility enforces the first between targets; this test sees each #include, so nothing hides
// behind a dependency that another file needed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Strings = std::vector<std::string>;

const Strings kRooms = {"core", "kernels", "model", "comm", "parallel", "tools"};
// May stand at the top level beside the rooms, dot files and what .gitignore names.
const Strings kTopLevel = {"WORKSPACE", "BUILD", "MODULE.bazel", "README.md",
                           "configs",   "docs",  "tests",        "third_party"};

/// What sources below `where` may include of the project. The first entry that fits a file counts.
struct RoomRule {
  std::string where;
  Strings allowed;
  Strings forbidden;  // exceptions from `allowed`
};
const std::vector<RoomRule> kRoomRules = {
    {"core/", {"core/"}, {}},
    // Kernels take views: they own and allocate nothing.
    {"kernels/", {"core/", "kernels/"}, {"core/tensor.h", "core/pool.h", "core/runtime.h"}},
    {"model/", {"core/", "kernels/", "model/"}, {}},
    {"comm/", {"core/", "kernels/", "comm/"}, {}},
    {"parallel/",
     {"core/", "kernels/", "comm/", "parallel/", "model/autograd/", "model/nn/", "model/model.h",
      "model/registry.h"},
     {}},
    {"tools/", {"core/", "kernels/", "model/", "comm/", "parallel/", "tools/"}, {}},
};

/// Libraries by how the headers they provide begin, and the files that may include them.
struct LibraryRule {
  Strings headers;
  Strings where;
};
const std::vector<LibraryRule> kLibraryRules = {
    {{"fmt/"}, {""}},
    {{"spdlog/"}, {"core/log.cc"}},
    {{"nlohmann/"}, {"core/", "tools/"}},
    {{"CLI/"}, {"tools/"}},
    {{"dnnl", "oneapi/", "Eigen/", "unsupported/", "omp.h"}, {"kernels/cpu/"}},
    {{"immintrin.h", "x86intrin.h", "xmmintrin.h", "emmintrin.h"}, {"kernels/cpu/"}},
    {{"cublas", "cudnn", "cub/", "cooperative_groups", "mma.h"}, {"kernels/cuda/"}},
    {{"cuda", "nvtx"}, {"core/cuda/", "kernels/cuda/", "comm/nccl_communicator.cc"}},
    {{"nccl.h"}, {"comm/nccl_communicator.cc"}},
    {{"ucp/", "uct/", "ucs/", "ucm/"}, {"comm/ucx_"}},
    {{"gtest/", "gmock/"}, {}},
    {{"sys/", "linux/", "net/", "netinet/", "arpa/"}, {""}},
};

/// Identifiers that code below `where` must not use.
struct WordRule {
  Strings words;
  Strings where;
  std::string why;
};
const std::vector<WordRule> kWordRules = {
    {{"getenv", "secure_getenv", "setenv", "putenv", "environ"},
     {"core/", "kernels/", "model/", "comm/", "parallel/"},
     "the environment is read in tools/ and handed down"},
    {{"thread_local"}, {""}, "ranks are threads of one process; pass the context as an argument"},
    {{"main"}, {"core/", "kernels/", "model/", "comm/", "parallel/"}, "programs live in tools/"},
    {{"rank", "Rank", "world_size", "device", "Device", "stream", "Stream"},
     {"model/models/"},
     "a model never mentions a rank, a device or a stream"},
};

bool starts_with_any(std::string_view text, const Strings& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [&](const std::string& prefix) { return text.starts_with(prefix); });
}

/// Complaint about `#include "header"` in `file`, or nothing.
std::string check_project_include(const std::string& file, const std::string& header) {
  if (!starts_with_any(header,
                       {"core/", "kernels/", "model/", "comm/", "parallel/", "tools/", "tests/"})) {
    return "is not a path from the top of the tree";
  }
  for (const RoomRule& rule : kRoomRules) {
    if (!file.starts_with(rule.where)) continue;
    const bool ok =
        starts_with_any(header, rule.allowed) && !starts_with_any(header, rule.forbidden);
    return ok ? "" : rule.where + " may not include it";
  }
  return "";
}

/// Complaint about `#include <header>` in `file`, or nothing.
std::string check_library_include(const std::string& file, const std::string& header) {
  for (const LibraryRule& rule : kLibraryRules) {
    if (!starts_with_any(header, rule.headers)) continue;
    if (starts_with_any(file, rule.where)) return "";
    std::string where;
    for (const std::string& place : rule.where) where += " " + place;
    return "this library belongs in" + (where.empty() ? " tests/" : where);
  }
  // The standard library's own headers have no directory.
  if (header.find('/') == std::string::npos) return "";
  return "unknown library; decide who may use it and add it to tests/rooms_test.cc";
}

/// `line` without comments, and with empty string literals. `in_comment` carries /* over lines.
std::string code_of(const std::string& line, bool& in_comment) {
  std::string code;
  char quote = 0;
  for (size_t i = 0; i < line.size(); ++i) {
    const std::string_view rest = std::string_view(line).substr(i);
    if (in_comment) {
      if (rest.starts_with("*/")) in_comment = false, ++i;
    } else if (quote != 0) {
      if (line[i] == '\\') {
        ++i;
      } else if (line[i] == quote) {
        quote = 0;
        code += line[i];
      }
    } else if (rest.starts_with("//")) {
      break;
    } else if (rest.starts_with("/*")) {
      in_comment = true;
      ++i;
    } else {
      // A ' after a digit or letter separates digits, it opens nothing.
      const bool literal =
          line[i] == '"' ||
          (line[i] == '\'' && (i == 0 || !std::isalnum(static_cast<unsigned char>(line[i - 1]))));
      if (literal) quote = line[i];
      code += line[i];
    }
  }
  return code;
}

/// Identifiers (and numbers) of a piece of code, in order.
Strings identifiers(const std::string& code) {
  Strings found(1);
  for (const char c : code) {
    if (std::isalnum(static_cast<unsigned char>(c)) || c == '_') {
      found.back() += c;
    } else if (!found.back().empty()) {
      found.emplace_back();
    }
  }
  return found;
}

/// The header that a line includes, with its opening quote or bracket; empty if it includes none.
std::string included(const std::string& line) {
  std::string text;
  std::remove_copy_if(line.begin(), line.end(), std::back_inserter(text),
                      [](unsigned char c) { return std::isspace(c); });
  const std::string_view directive = "#include";
  if (!text.starts_with(directive)) return "";
  text.erase(0, directive.size());
  return text.substr(0, text.find_first_of("\">", 1));
}

/// Every breach in one source file, as "file:line: text".
Strings check_source(const std::string& file, const std::string& content) {
  Strings found;
  std::istringstream lines(content);
  std::string line;
  bool in_comment = false;
  for (int number = 1; std::getline(lines, line); ++number) {
    const std::string at = file + ":" + std::to_string(number) + ": ";
    const std::string header = in_comment ? "" : included(line);
    if (!header.empty()) {
      const std::string path = header.substr(1);
      const std::string complaint =
          header[0] == '"' ? check_project_include(file, path) : check_library_include(file, path);
      if (!complaint.empty()) found.push_back(at + path + ": " + complaint);
      continue;
    }
    const Strings words = identifiers(code_of(line, in_comment));
    for (const WordRule& rule : kWordRules) {
      if (!starts_with_any(file, rule.where)) continue;
      for (const std::string& word : words) {
        const bool banned =
            std::find(rule.words.begin(), rule.words.end(), word) != rule.words.end();
        if (banned) found.push_back(at + word + ": " + rule.why);
      }
    }
  }
  return found;
}

/// Names at the top level that should not be there. `gitignore` is the text of .gitignore.
Strings check_top_level(const Strings& names, const std::string& gitignore) {
  Strings ignored;  // "/runs/" -> "runs", "/bazel-*" -> prefix "bazel-*"
  std::istringstream lines(gitignore);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('/')) line.pop_back();
    if (line.starts_with('/')) ignored.push_back(line.substr(1));
  }
  Strings found;
  for (const std::string& name : names) {
    const auto is_name = [&](const std::string& pattern) {
      if (pattern.ends_with('*')) return name.starts_with(pattern.substr(0, pattern.size() - 1));
      return name == pattern;
    };
    const bool ok = name.starts_with('.') ||
                    std::any_of(kTopLevel.begin(), kTopLevel.end(), is_name) ||
                    std::any_of(kRooms.begin(), kRooms.end(), is_name) ||
                    std::any_of(ignored.begin(), ignored.end(), is_name);
    if (!ok) found.push_back(name + " has no place at the top level");
  }
  return found;
}

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The source tree: Bazel links WORKSPACE into the test's directory, and the link leads home.
fs::path source_tree() { return fs::canonical("WORKSPACE").parent_path(); }

TEST(Rooms, IncludeOnlyWhatTheyMayAndCallNothingForbidden) {
  const fs::path root = source_tree();
  for (const std::string& room : kRooms) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / room)) {
      static const Strings kinds = {".h", ".cc", ".cu", ".cuh"};
      const fs::path& path = entry.path();
      if (std::find(kinds.begin(), kinds.end(), path.extension()) == kinds.end()) continue;
      for (const std::string& breach :
           check_source(fs::relative(path, root).string(), read(path))) {
        ADD_FAILURE() << breach;
      }
    }
  }
}

TEST(Rooms, HaveTheTopLevelToThemselves) {
  Strings names;
  for (const fs::directory_entry& entry : fs::directory_iterator(source_tree())) {
    names.push_back(entry.path().filename().string());
  }
  for (const std::string& room : kRooms) {
    EXPECT_NE(std::find(names.begin(), names.end(), room), names.end()) << room << " is missing";
  }
  const Strings strangers = check_top_level(names, read(source_tree() / ".gitignore"));
  EXPECT_EQ(strangers, Strings{});
}

TEST(RoomsChecker, ReportsAnIncludeOfAHigherRoomWithItsLine) {
  const std::string source = "#include \"core/pool.h\"\n\n# include \"model/model.h\"\n";
  EXPECT_EQ(check_source("core/pool.cc", source),
            Strings{"core/pool.cc:3: model/model.h: core/ may not include it"});
}

struct Planted {
  std::string file, line;
};

TEST(RoomsChecker, FindsEachPlantedBreach) {
  const Planted planted[] = {
      {"kernels/norm.cc", "#include \"comm/store.h\""},
      {"kernels/norm.cc", "#include \"core/tensor.h\""},
      {"kernels/norm.cc", "#include \"norm.h\""},
      {"kernels/norm.cc", "#include <dnnl.hpp>"},
      {"kernels/norm.cc", "  #  include <immintrin.h>  // for prefetch"},
      {"comm/mesh.cc", "#include \"model/nn/parameter.h\""},
      {"model/ops/loss.cc", "#include \"parallel/engine.h\""},
      {"parallel/engine.cc", "#include \"model/ops/loss.h\""},
      {"parallel/engine.cc", "#include \"model/models/gpt.h\""},
      {"tools/train_main.cc", "#include \"tests/helpers.h\""},
      {"tools/bench.cc", "#include <Eigen/Dense>"},
      {"core/config.cc", "#include <CLI/CLI.hpp>"},
      {"core/config.cc", "#include <spdlog/spdlog.h>"},
      {"core/config.cc", "#include <gtest/gtest.h>"},
      {"core/stream.cc", "#include <cuda_runtime.h>"},
      {"tools/train_main.cc", "#include <boost/any.hpp>"},
      {"core/log.cc", "const char* level = std::getenv(\"LEVEL\");"},
      {"core/log.cc", "/* note */ getenv(\"LEVEL\");"},
      {"core/log.cc", "/* note\n more */ getenv(\"LEVEL\");"},
      {"core/log.cc", "int x = 1'000; auto y = getenv(\"LEVEL\");"},
      {"tools/bench.cc", "static thread_local int depth = 0;"},
      {"parallel/trainer.cc", "int main() { return 0; }"},
      {"model/models/gpt.cc", "if (rank == 0) return;"},
  };
  for (const Planted& p : planted) {
    EXPECT_EQ(check_source(p.file, p.line).size(), 1u) << p.file << ": " << p.line;
  }
}

TEST(RoomsChecker, LetsGoodLinesPass) {
  const Planted planted[] = {
      {"kernels/cpu/gemm.cc", "#include <oneapi/dnnl/dnnl.hpp>"},
      {"kernels/cuda/gemm.cu", "#include <cublasLt.h>"},
      {"core/files.cc", "#include <sys/mman.h>"},
      {"core/files.cc", "#include <vector>"},
      {"core/log.cc", "#include <spdlog/spdlog.h>"},
      {"parallel/engine.cc", "#include \"model/autograd/tape.h\""},
      {"tools/train_main.cc", "const char* home = std::getenv(\"HOME\");"},
      {"core/log.cc", "// getenv is not for us"},
      {"core/log.cc", "/* getenv\n getenv */ int x;"},
      {"core/log.cc", "/*\n#include <dnnl.hpp>\n*/ int x;"},
      {"core/log.cc", "log(\"getenv \\\" thread_local\");"},
      {"model/models/gpt.cc", "// every rank, device and stream"},
  };
  for (const Planted& p : planted) {
    EXPECT_EQ(check_source(p.file, p.line), Strings{}) << p.file << ": " << p.line;
  }
}

TEST(RoomsChecker, FindsStrangersAtTheTopLevel) {
  const std::string gitignore = "/bazel-*\n/runs/\n*.tmp\n";
  EXPECT_EQ(check_top_level({"core", "README.md", ".git", "bazel-out", "runs"}, gitignore),
            Strings{});
  EXPECT_EQ(check_top_level({"src", "run", "core", "core2"}, gitignore).size(), 3u);
}

}  // namespace

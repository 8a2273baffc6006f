// Token files from one format to another: what `zpp-data convert` does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/data/token_file.h"

namespace zpp {

struct ConvertOptions {
  TokenFileOptions from = {};  // format, vocabulary and end-of-text id of the input
  std::string to = "zpp";      // zpp or llmc
  std::string tokenizer = {};  // name for the header; empty: the input's
};

struct ConvertReport {
  int64_t tokens = 0, documents = 0;
  bool documents_kept = false;  // whether the output says where documents end
};

/// Copies all tokens. Documents that only an index tells apart (megatron) get an end-of-text each
/// where they lack one, if its id is given.
/// Errors:  as TokenFile and TokenWriter; kInvalidArgument when input and output are one file.
ConvertReport convert(const std::filesystem::path& input, const std::filesystem::path& output,
                      const ConvertOptions& options = {});

}  // namespace zpp

// The `data` section of a configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"

namespace zpp {

/// One file of tokens.
struct DataSource {
  std::string path = {};
  std::string format = "auto";
  /// Share of the samples; absent everywhere: in proportion to tokens.
  std::optional<double> weight = {};
  /// End-of-text id, when the file does not say.
  std::optional<int64_t> eot = {};

  void fields(Fields& f) {
    f("path", path, "file of tokens (for megatron the .bin, the .idx or their common part)")(
        "format", format,
        "layout of the file; auto tells zpp, llmc and megatron by their magic numbers",
        {"auto", "zpp", "llmc", "megatron", "raw_u16", "text"})(
        "weight", weight,
        "share of the samples, for all files of the list or for none (in proportion to tokens)",
        0.0, 1e9)("eot", eot, "id that ends a document, where the file does not say", 0, INT32_MAX);
  }
};

struct DataConfig {
  std::vector<DataSource> train;
  std::vector<DataSource> val;
  std::string tokenizer = "byte";
  bool document_mask = false;

  void fields(Fields& f) {
    f.list("train", train, "files to learn from")
        .list("val", val, "files to evaluate on, from their beginning, one after the other")(
            "tokenizer", tokenizer, "how generated ids become text", {"byte"})(
            "document_mask", document_mask,
            "attention and positions start afresh at every document");
  }
};

}  // namespace zpp

#include "core/data/token_loader.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/data/permutation.h"
#include "core/error.h"
#include "core/rng.h"

namespace zpp {
namespace {

std::optional<SampleSchedule> make_schedule(const std::vector<DataSource>& sources) {
  std::vector<double> weights;
  for (const DataSource& s : sources)
    if (s.weight) weights.push_back(*s.weight);
  if (weights.empty()) return std::nullopt;
  if (weights.size() != sources.size()) {
    const auto without =
        std::find_if(sources.begin(), sources.end(), [](const auto& s) { return !s.weight; });
    throw Error(
        Code::kInvalidArgument,
        fmt::format(
            "data: {} of {} files have a weight, {} has none: give all of them one, or none",
            weights.size(), sources.size(), without->path));
  }
  return SampleSchedule(weights);
}

// Image of the k-th draw from `size` windows: every epoch is a permutation of its own.
int64_t shuffled(int64_t k, int64_t size, uint64_t seed, uint64_t stream) {
  const int64_t epoch = k / size;
  return Permutation(size, seed, mix_hash(stream, static_cast<uint64_t>(epoch)))(k % size);
}

}  // namespace

TokenLoader::TokenLoader(const std::vector<DataSource>& sources, const Options& options)
    : options_(options), schedule_(make_schedule(sources)) {
  if (options.context <= 0)
    throw Error(Code::kInvalidArgument,
                fmt::format("data: a context of {} tokens", options.context));
  if (sources.empty()) throw Error(Code::kInvalidArgument, "data: no files are given");
  open(sources);
}

void TokenLoader::open(const std::vector<DataSource>& sources) {
  first_window_.push_back(0);
  for (const DataSource& source : sources) {
    const TokenFile& file = files_.emplace_back(
        source.path, TokenFileOptions{source.format, options_.vocab, source.eot});
    if (file.size() <= options_.context) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("{}: {} tokens, but one sample takes {} (the context and one more)",
                              file.path().string(), file.size(), options_.context + 1));
    }
    if (options_.document_mask && !file.knows_documents()) {
      throw Error(Code::kInvalidArgument,
                  fmt::format("{}: a document mask needs the id that ends a document, which {} "
                              "files do not hold: set "
                              "\"eot\" beside its path (50256 for GPT-2 tokens)",
                              file.path().string(), file.info().format));
    }
    file.advise(MappedFile::Access::kRandom);
    first_window_.push_back(first_window_.back() + (file.size() - 1) / options_.context);
  }
}

TokenLoader::Window TokenLoader::window_at(int64_t global_index) const {
  const auto next = std::upper_bound(first_window_.begin(), first_window_.end(), global_index);
  const auto file = next - first_window_.begin() - 1;
  return {file, global_index - first_window_[static_cast<size_t>(file)]};
}

TokenLoader::Window TokenLoader::sample_window(int64_t sample) const {
  constexpr uint64_t kStream = hash_name("data order");
  if (!schedule_) return window_at(shuffled(sample, windows(), options_.seed, kStream));
  const SampleSchedule::Place place = schedule_->at(sample);
  const auto file = static_cast<size_t>(place.source);
  const int64_t count = first_window_[file + 1] - first_window_[file];
  const uint64_t stream = mix_hash(kStream, static_cast<uint64_t>(place.source));
  return {place.source, shuffled(place.index, count, options_.seed, stream)};
}

HostBatch TokenLoader::make_batch(int64_t first, int64_t count) const {
  if (first < 0 || count < 0)
    throw Error(Code::kInternal, fmt::format("data: samples [{}, {} + {})", first, first, count));
  const auto elements = static_cast<size_t>(count * options_.context);
  HostBatch batch;
  batch.first_sample = first;
  batch.samples = count;
  batch.length = options_.context;
  batch.tokens.resize(elements);
  batch.targets.resize(elements);
  if (options_.document_mask) batch.doc_start.resize(elements);
  return batch;
}

HostBatch TokenLoader::batch(int64_t first_sample, int64_t count) const {
  HostBatch batch = make_batch(first_sample, count);
  for (int64_t row = 0; row < count; ++row) fill(batch, row, sample_window(first_sample + row));
  return batch;
}

HostBatch TokenLoader::eval_batch(int64_t first_window, int64_t count) const {
  HostBatch batch = make_batch(first_window, count);
  if (count > windows() || first_window > windows() - count) {
    throw Error(Code::kInvalidArgument,
                fmt::format("data: evaluation wants windows {} to {}, the files have {}",
                            first_window, first_window + count - 1, windows()));
  }
  for (int64_t row = 0; row < count; ++row) fill(batch, row, window_at(first_window + row));
  return batch;
}

void TokenLoader::fill(HostBatch& batch, int64_t row, Window window) const {
  const int64_t length = options_.context, begin = window.index * length;
  const TokenFile& file = files_[static_cast<size_t>(window.file)];
  const auto at = static_cast<size_t>(row * length), n = static_cast<size_t>(length);
  const std::span<int32_t> tokens = std::span(batch.tokens).subspan(at, n);
  const std::span<int32_t> targets = std::span(batch.targets).subspan(at, n);
  file.read(begin, tokens);
  std::copy(tokens.begin() + 1, tokens.end(), targets.begin());
  file.read(begin + length, targets.last(1));
  batch.valid += length;
  if (options_.document_mask) mask_documents(batch, row, window);
}

void TokenLoader::mask_documents(HostBatch& batch, int64_t row, Window window) const {
  const int64_t length = options_.context, begin = window.index * length;
  const auto at = static_cast<size_t>(row * length);
  int64_t filled = 0, start = 0;
  const auto fill_to = [&](int64_t end) {
    for (; filled < end; ++filled)
      batch.doc_start[at + static_cast<size_t>(filled)] = static_cast<int32_t>(start);
  };
  // The token after the row counts too: as the target of the last one.
  for (int64_t position :
       files_[static_cast<size_t>(window.file)].document_starts(begin + 1, begin + length + 1)) {
    const int64_t column = position - begin;
    batch.targets[at + static_cast<size_t>(column - 1)] = -1;
    --batch.valid;
    fill_to(column);
    start = column;
  }
  fill_to(length);
}

}  // namespace zpp

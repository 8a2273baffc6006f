#include "comm/packet.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/dispatch.h"
#include "kernels/host_sum.h"

namespace zpp {
namespace {

constexpr int64_t kAlignment = 4;  // of f32 scales and values

int64_t padded(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void round_values(const float* from, bf16* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = to_bf16(from[i]);
}

const float* scales_at(const std::byte* packet, int64_t offset) {
  return reinterpret_cast<const float*>(packet + offset);
}

}  // namespace

Packet::Packet(const Segments& segments, int64_t begin, int64_t end, const WireFormat& format,
               DType as_is)
    : begin_(begin), format_(format), as_is_(as_is) {
  for (const Segment& segment : segments) {
    const int64_t first = std::max(segment.begin, begin);
    const int64_t n = std::min(segment.begin + segment.n, end) - first;
    if (n <= 0) continue;
    Part part{first - begin, n, segment.coded && format.coded(), bytes_, bytes_};
    if (part.coded) {
      part.contents += format.quant().scales(n) * static_cast<int64_t>(sizeof(float));
      bytes_ = part.contents + padded(format.quant().code_bytes(n));
    } else {
      bytes_ = part.contents + padded(n * size_of(as_is));
    }
    parts_.push_back(part);
  }
}

void Packet::encode(const Encode& args, std::byte* to) const {
  const auto* from = static_cast<const std::byte*>(args.from);
  for (const Part& part : parts_) {
    encode_part(part, args, from + part.at * size_of(args.dtype), to);
  }
}

void Packet::encode_part(const Part& part, const Encode& args, const std::byte* from,
                         std::byte* to) const {
  if (part.coded) {
    return kernels::quantize(args.isa, {.from = from,
                                        .dtype = args.dtype,
                                        .n = part.n,
                                        .format = format_.quant(),
                                        .hadamard = args.hadamard,
                                        .rounding = args.rounding,
                                        .first = begin_ + part.at,
                                        .codes = to + part.contents,
                                        .scales = reinterpret_cast<float*>(to + part.scales)});
  }
  std::byte* const values = to + part.contents;
  if (args.dtype == as_is_) {
    std::memcpy(values, from, static_cast<size_t>(part.n * size_of(as_is_)));
  } else {
    round_values(reinterpret_cast<const float*>(from), reinterpret_cast<bf16*>(values), part.n);
  }
}

void Packet::decode(std::span<const std::byte* const> packets, const Decode& args) const {
  for (const Part& part : parts_) decode_part(part, packets, args);
}

void Packet::decode_part(const Part& part, std::span<const std::byte* const> packets,
                         const Decode& args) const {
  std::byte* const out = static_cast<std::byte*>(args.out) + part.at * size_of(args.dtype);
  if (part.coded) {
    std::vector<kernels::Coded> sources;
    for (const std::byte* packet : packets) {
      sources.push_back({packet + part.contents, scales_at(packet, part.scales)});
    }
    return kernels::dequantize(args.isa, {.sources = sources.data(),
                                          .count = static_cast<int>(sources.size()),
                                          .n = part.n,
                                          .format = format_.quant(),
                                          .hadamard = args.hadamard,
                                          .scale = args.scale,
                                          .out = out,
                                          .out_dtype = args.dtype});
  }
  std::vector<const void*> sources;
  for (const std::byte* packet : packets) sources.push_back(packet + part.contents);
  kernels::host_reduce(args.isa, {.sources = sources.data(),
                                  .count = static_cast<int>(sources.size()),
                                  .dtype = as_is_,
                                  .out = out,
                                  .out_dtype = args.dtype,
                                  .n = part.n,
                                  .scale = args.scale});
}

void Packet::recode(std::span<const std::byte* const> packets, const Packet& as, const Encode& args,
                    float* sums, std::byte* to) const {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Part& part = parts_[i];
    const Part& next = as.parts_[i];
    if (part.coded && next.coded) {
      std::vector<kernels::Coded> sources;
      for (const std::byte* packet : packets) {
        sources.push_back({packet + part.contents, scales_at(packet, part.scales)});
      }
      kernels::requantize(args.isa, {.sources = sources.data(),
                                     .count = static_cast<int>(sources.size()),
                                     .n = part.n,
                                     .format = format_.quant(),
                                     .to_format = as.format_.quant(),
                                     .rounding = args.rounding,
                                     .first = begin_ + part.at,
                                     .codes = to + next.contents,
                                     .scales = reinterpret_cast<float*>(to + next.scales)});
      continue;
    }
    // A transform is undone where codes become plain values and made where they become codes.
    decode_part(part, packets,
                {.isa = args.isa, .hadamard = part.coded && args.hadamard, .out = sums});
    Encode again = args;
    again.dtype = DType::kF32;
    as.encode_part(next, again, reinterpret_cast<const std::byte*>(sums + part.at), to);
  }
}

PackedCells::PackedCells(const Segments& segments, int64_t begin, int64_t end, int cells,
                         const WireFormat& format, DType as_is)
    : length_((end - begin) / cells), offsets_{0} {
  for (int i = 0; i < cells; ++i) {
    packets_.emplace_back(segments, begin + i * length_, begin + (i + 1) * length_, format, as_is);
    offsets_.push_back(offsets_.back() + packets_.back().bytes());
  }
}

std::vector<int64_t> PackedCells::ends(int parts) const {
  std::vector<int64_t> ends;
  for (int i = 1; i <= parts; ++i) ends.push_back(offset(count() / parts * i));
  return ends;
}

void encode_cells(Stream& stream, std::shared_ptr<const PackedCells> cells, int first, int count,
                  const View& values, const View& packed) {
  kernels::check_args("encode_cells", stream, {{"values", values}, {"packed", packed}});
  kernels::check_shape("encode_cells", {"values", values}, {count * cells->length()});
  kernels::check_shape("encode_cells", {"packed", packed}, {cells->bytes()});
  CpuStream& cpu = kernels::cpu_stream("encode_cells", stream);
  cpu.launch("encode_cells", [=, isa = cpu.isa(), cells = std::move(cells)](Workers&) {
    for (int i = 0; i < count; ++i) {
      const View cell = values.slice(0, i * cells->length(), (i + 1) * cells->length());
      std::byte* const to = static_cast<std::byte*>(packed.data) + cells->offset(first + i);
      cells->packet(first + i).encode({.isa = isa, .from = cell.data, .dtype = cell.dtype}, to);
    }
  });
}

void decode_cells(Stream& stream, std::shared_ptr<const PackedCells> cells, const View& packed,
                  const View& values) {
  kernels::check_args("decode_cells", stream, {{"packed", packed}, {"values", values}});
  kernels::check_shape("decode_cells", {"values", values}, {cells->count() * cells->length()});
  kernels::check_shape("decode_cells", {"packed", packed}, {cells->bytes()});
  CpuStream& cpu = kernels::cpu_stream("decode_cells", stream);
  cpu.launch("decode_cells", [=, isa = cpu.isa(), cells = std::move(cells)](Workers&) {
    for (int i = 0; i < cells->count(); ++i) {
      const View cell = values.slice(0, i * cells->length(), (i + 1) * cells->length());
      const std::array<const std::byte*, 1> packet = {static_cast<std::byte*>(packed.data) +
                                                      cells->offset(i)};
      cells->packet(i).decode(packet, {.isa = isa, .out = cell.data, .dtype = cell.dtype});
    }
  });
}

}  // namespace zpp

// What a part of a flat buffer looks like on the wire when its matrices are coded in blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/cpu_stream.h"
#include "core/rng.h"
#include "core/types.h"
#include "kernels/quantize.h"

namespace zpp {

/// How the values of matrices travel.
struct WireFormat {
  int bits = 0;       // of a code, 8 or 4; 0: values travel as they are
  int64_t block = 0;  // values that share a scale
  bool coded() const { return bits != 0; }
  kernels::QuantFormat quant() const { return {bits, block}; }
  bool operator==(const WireFormat&) const = default;
};

/// A run of elements of a flat buffer that mean something; what lies between runs is padding and is
/// not sent.
struct Segment {
  int64_t begin = 0;
  int64_t n = 0;
  bool coded = false;  // a matrix: travels in the wire format; else (norms, biases) as it is
};
/// Ascending, not overlapping. Coded ones start on a multiple of every block length in use.
using Segments = std::vector<Segment>;

/// Elements [begin, end) of a flat buffer. For each segment in it: a coded one is its scales (f32)
/// and then its codes, another its values in the dtype `as_is`; each padded to 4 bytes. Cuts through
/// a coded segment must fall on block boundaries: then the bytes of a whole are those of its parts.
class Packet {
 public:
  Packet(const Segments& segments, int64_t begin, int64_t end, const WireFormat& format,
         DType as_is);

  int64_t bytes() const { return bytes_; }

  struct Encode {
    Isa isa = Isa::kAvx2;
    const void* from = nullptr;  // element `begin`
    DType dtype = DType::kF32;   // f32, or the packet's as_is
    bool hadamard = false;       // see kernels::Quantize
    const RngKey* rounding = nullptr;
  };
  /// Element e of the flat buffer draws random number e.
  void encode(const Encode& args, std::byte* to) const;

  struct Decode {
    Isa isa = Isa::kAvx2;
    bool hadamard = false;  // undo it
    float scale = 1;
    void* out = nullptr;  // element `begin`
    DType dtype = DType::kF32;
  };
  /// out = scale * the sum of the packets, added in their order in f32. Padding is left alone.
  void decode(std::span<const std::byte* const> packets, const Decode& args) const;

  /// The sum of the packets as a packet of another format: decode and encode, in one pass where both
  /// are coded. `sums` holds end - begin numbers.
  void recode(std::span<const std::byte* const> packets, const Packet& as, const Encode& args,
              float* sums, std::byte* to) const;

 private:
  struct Part {
    int64_t at, n;  // from `begin` on
    bool coded;
    int64_t scales, contents;  // bytes from the packet's start
  };
  void encode_part(const Part& part, const Encode& args, const std::byte* from,
                   std::byte* to) const;
  void decode_part(const Part& part, std::span<const std::byte* const> packets,
                   const Decode& args) const;

  int64_t begin_;
  WireFormat format_;
  DType as_is_;
  std::vector<Part> parts_;
  int64_t bytes_ = 0;
};

/// A range of a flat buffer cut into equal cells, each a packet, one after the other in memory.
class PackedCells {
 public:
  /// `cells` divides end - begin, and cuts fall on block boundaries.
  PackedCells(const Segments& segments, int64_t begin, int64_t end, int cells,
              const WireFormat& format, DType as_is);

  int count() const { return static_cast<int>(packets_.size()); }
  /// Elements of one.
  int64_t length() const { return length_; }
  int64_t offset(int cell) const { return offsets_[static_cast<size_t>(cell)]; }
  int64_t bytes() const { return offsets_.back(); }
  const Packet& packet(int cell) const { return packets_[static_cast<size_t>(cell)]; }
  /// Where the cells of each of `parts` ranks end, in bytes; `parts` divides count().
  std::vector<int64_t> ends(int parts) const;

 private:
  int64_t length_;
  std::vector<Packet> packets_;
  std::vector<int64_t> offsets_;  // and the end
};

/// Enqueues the coding of cells [first, first + count), whose values are `values`, into their place
/// in `packed`.
/// Shapes:  values (count * length())   packed (bytes()) u8
void encode_cells(Stream& stream, std::shared_ptr<const PackedCells> cells, int first, int count,
                  const View& values, const View& packed);
/// Enqueues the decoding of all cells.
/// Shapes:  packed (bytes()) u8   values (count() * length())
void decode_cells(Stream& stream, std::shared_ptr<const PackedCells> cells, const View& packed,
                  const View& values);

}  // namespace zpp

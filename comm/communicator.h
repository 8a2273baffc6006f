// Collectives on a stream of their own. The public calls check their arguments and are not virtual;
// a backend implements every do_*.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/coded_reduction.h"
#include "comm/transport.h"
#include "core/stream.h"
#include "core/types.h"

namespace zpp {

/// Sums are taken in f32 (f64 for f64) in an order that depends on sizes and ranks only.
enum class ReduceOp : uint8_t { kSum, kAvg, kMax };

/// A group of ranks. All of them call the same collectives in the same order; the calls enqueue on
/// stream(), which first waits for the events in `after` and for nothing else. Views are dense and
/// must stay valid until the Work is done.
/// Errors of all collectives: kInvalidArgument when enqueued if views disagree; on the stream:
/// kTimeout, kPeerLost, kFailedPrecondition as Transport::wait
class Communicator {
 public:
  /// One enqueued collective.
  class Work {
   public:
    Work() = default;  // done
    explicit Work(Event done) : done_(std::move(done)) {}
    const Event& done() const { return done_; }
    /// Later work of `consumer` runs after the collective; never blocks the host.
    void wait(Stream& consumer) const { consumer.wait(done()); }
    /// Blocks the host.
    void synchronize(Millis timeout = Millis::max()) const { done_.synchronize(timeout); }

   private:
    Event done_;
  };

  virtual ~Communicator() = default;

  /// "weights/world": what messages and ledger call it.
  const std::string& name() const { return name_; }
  int rank() const { return rank_; }  // in this group
  int size() const { return static_cast<int>(members_.size()); }
  /// Ranks of the world, in group order.
  const std::vector<int>& members() const { return members_; }
  virtual Stream& stream() = 0;

  /// out (size * n) = the in (n) of all ranks, in rank order. `in` may be its own place in `out`.
  /// Any dtype.
  Work all_gather(const View& in, const View& out, const std::vector<Event>& after = {});
  /// out = the in of all ranks, in rank order, of any lengths: rank r's part ends at element ends[r].
  /// `in` may be its own place in `out`. Any dtype.
  Work all_gather_parts(const View& in, const View& out, const std::vector<int64_t>& ends,
                        const std::vector<Event>& after = {});
  /// out (n) = part rank() of the sum, mean or maximum of all in (size * n). `out` may be that part of
  /// `in`; `in` may be overwritten. Dtypes: f32, bf16, f64; out alike, or f32 for bf16.
  Work reduce_scatter(const View& in, const View& out, ReduceOp op,
                      const std::vector<Event>& after = {});
  /// The same with coded messages, as `how` says: out (n) = how.scale * the sum. Every member codes,
  /// sums and codes again; `in` must cover the part of the flat buffer from how.first on. f32.
  /// Errors: also kInvalidArgument where cuts do not fall on the grid
  Work coded_reduce_scatter(const View& in, const View& out, const CodedReduction& how,
                            const std::vector<Event>& after = {});
  /// Dtypes: f32, bf16, f64, i32 and i64 (sum and max).
  Work all_reduce(const View& inout, ReduceOp op, const std::vector<Event>& after = {});
  Work broadcast(const View& inout, int root, const std::vector<Event>& after = {});
  /// Part r of `in` (size * n) goes to rank r; part r of `out` comes from it. Must not overlap.
  Work all_to_all(const View& in, const View& out, const std::vector<Event>& after = {});
  Work barrier(const std::vector<Event>& after = {});

  /// Ranks with the same color become a group of its own, ordered by key (then rank), on the same
  /// stream. All ranks call it; blocks the host until all have.
  /// Errors: kFailedPrecondition on a dry stream, which knows of no other rank
  virtual std::unique_ptr<Communicator> split(int color, int key, const std::string& name) = 0;
  /// The same when every rank knows its group beforehand: `members` (ranks of the world, this one
  /// among them, in group order). All ranks call it, those of a group alike; blocks, except on a dry
  /// stream.
  /// Errors: kInvalidArgument if the ranks disagree on who is in a group
  virtual std::unique_ptr<Communicator> subgroup(const std::vector<int>& members,
                                                 const std::string& name) = 0;
  /// Wakes everybody: collectives here and at the peers fail with kPeerLost and this reason.
  virtual void abort(const Error& why) noexcept = 0;

 protected:
  Communicator(std::string name, int rank, std::vector<int> members)
      : name_(std::move(name)), rank_(rank), members_(std::move(members)) {}

  // Enqueue on stream(); arguments are checked.
  virtual void do_all_gather(const View& in, const View& out) = 0;
  virtual void do_all_gather_parts(const View& in, const View& out,
                                   const std::vector<int64_t>& ends) = 0;
  virtual void do_coded_reduce_scatter(const View& in, const View& out,
                                       const CodedReduction& how) = 0;
  virtual void do_reduce_scatter(const View& in, const View& out, ReduceOp op) = 0;
  virtual void do_all_reduce(const View& inout, ReduceOp op) = 0;
  virtual void do_broadcast(const View& inout, int root) = 0;
  virtual void do_all_to_all(const View& in, const View& out) = 0;
  virtual void do_barrier() = 0;

 private:
  Work enqueue(const std::vector<Event>& after, const std::function<void()>& body);

  const std::string name_;
  const int rank_;
  const std::vector<int> members_;
};

}  // namespace zpp

// How fragments go from member to member: the interface. tcp_transport.h is the implementation over
// sockets. Thread-safe; a sink and `done` are called from the transport's own thread, which they
// must not keep.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/stream/fragment.h"

namespace rewire {

// Takes what arrives on a stream. Bytes are whole and hash to what the header says.
class FragmentSink {
 public:
  virtual ~FragmentSink() = default;
  // Not ok: the sender is told that it was rejected, and its connection closed.
  virtual absl::Status Take(MemberId sender, const FragmentHeader& header,
                            std::span<const char> bytes) = 0;
  // A fragment arrived that is not what its header says.
  virtual void Corrupted(MemberId sender, const FragmentHeader& header) = 0;
};

struct OutFragment {
  FragmentHeader header;        // the epoch is set by the transport
  std::span<const char> bytes;  // stays valid, and as it is, until `done`; never the state itself
};

struct TransportCounters {
  uint64_t bytes_in = 0;         // state bytes handed to sinks
  uint64_t bytes_out = 0;        // state bytes acknowledged by receivers
  uint64_t dropped_stale = 0;    // connections and fragments of a stream that is not open
  uint64_t dropped_garbage = 0;  // bytes that are no hello, proof or header, and wrong proofs
  uint64_t refused = 0;    // connections that were late, too many, of no member here, or that ended
                           // before their proof
  uint64_t corrupted = 0;  // fragments whose content does not match
  // What a member reports to the agent's /metrics.
  [[nodiscard]] uint64_t turned_away() const { return dropped_stale + dropped_garbage + refused; }
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Where others reach this transport.
  [[nodiscard]] virtual std::string address() const = 0;
  // From here on fragments of these senders on this stream go to the sink. Another member, or
  // another incarnation of one of these, is refused.
  virtual void Open(const StreamKey& key, std::vector<WorldMember> senders, FragmentSink* sink) = 0;
  // Ends the stream in both directions. When it returns the sink is not called any more, and every
  // fragment sent on it is done.
  virtual void Close(const StreamKey& key) = 0;
  // Sends, in order per receiver; done(ok) once the receiver has placed it. A receiver that does
  // not know the stream is tried again until the connection deadline.
  virtual void Send(const StreamKey& key, const WorldMember& to, OutFragment fragment,
                    std::function<void(absl::Status)> done) = 0;
  // Answers Purpose::kNames to members that have this key: the value behind a name, if there is
  // one. Any member may ask: a joiner does so before the others know it.
  using Lookup = std::function<std::optional<std::string>(std::string_view name)>;
  virtual void AnswerNames(const Key& key, Lookup lookup) = 0;

  [[nodiscard]] virtual TransportCounters counters() const = 0;
};

}  // namespace rewire

// The interface by which fragments go from member to member; tcp_transport.h implements it over
// sockets. Thread-safe. The transport's own thread calls a sink and `done`, which must not block.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "reconfig/state/stream/stream_messages.h"

namespace rewire::state {

// Receives the fragments of a stream. Their bytes are complete and match the header's hash.
class FragmentSink {
 public:
  virtual ~FragmentSink() = default;
  // Takes one fragment. On an error the transport rejects the fragment and closes the connection.
  virtual absl::Status Take(MemberId sender, const FragmentHeader& header,
                            std::span<const char> bytes) = 0;
  // Reports a fragment whose bytes do not match its header.
  virtual void Corrupted(MemberId sender, const FragmentHeader& header) = 0;
};

struct OutFragment {
  FragmentHeader header;        // the transport sets the epoch
  std::span<const char> bytes;  // valid and unchanged until `done`; never the state itself
};

struct TransportCounters {
  uint64_t bytes_in = 0;         // state bytes handed to sinks
  uint64_t bytes_out = 0;        // state bytes acknowledged by receivers
  uint64_t dropped_stale = 0;    // connections and fragments of a stream that is not open
  uint64_t dropped_garbage = 0;  // malformed hellos, proofs, headers and names, and wrong proofs
  uint64_t refused = 0;    // connections that were late, over the limit, from or to an unexpected
                           // member, or that ended before their proof
  uint64_t corrupted = 0;  // fragments whose content does not match the header's hash
};

class Transport {
 public:
  virtual ~Transport() = default;

  // Returns the address at which others reach this transport.
  [[nodiscard]] virtual std::string address() const = 0;
  // Opens a stream: from then on the sink gets the fragments of these senders. Refuses other
  // members and other incarnations.
  virtual void Open(const StreamKey& key, std::vector<WorldMember> senders, FragmentSink* sink) = 0;
  // Ends the stream in both directions. After the return the sink is not called any more, and
  // `done` was called for every fragment sent on the stream.
  virtual void Close(const StreamKey& key) = 0;
  // Sends, in order per receiver; calls done(ok) after the receiver has placed the fragment, or
  // done with the error. While the receiver does not know the stream, retries until the connection
  // deadline.
  virtual void Send(const StreamKey& key, const WorldMember& to, OutFragment fragment,
                    std::function<void(absl::Status)> done) = 0;
  // Answers Purpose::kNames for members that have this key, with the value of the name, if there is
  // one. Any member may ask, because a joiner asks before the others know that joiner.
  using Lookup = std::function<std::optional<std::string>(std::string_view name)>;
  virtual void AnswerNames(const Key& key, Lookup lookup) = 0;

  [[nodiscard]] virtual TransportCounters counters() const = 0;
};

}  // namespace rewire::state

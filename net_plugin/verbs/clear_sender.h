// Tells the sender about the receiver's buffers: writes clear-to-send entries into the sender's
// ring over a rail, or sends them on the control connection if no rail can carry them. After a rail
// has failed, sends the entries again that did not arrive, and the keys of fallback NICs.
// Thread-compatible: owned by the thread that polls the connection; VerbsReceiver makes the calls.
#pragma once

#include <cstddef>
#include <cstdint>

#include "net_plugin/verbs/clear_to_send.h"
#include "net_plugin/verbs/connection.h"
#include "net_plugin/verbs/offer.h"
#include "net_plugin/verbs/receive_table.h"

namespace rewire::net {

class ClearSender {
 public:
  // Both must outlive this object. `table` has the receives before sequence `connection->next`.
  ClearSender(Connection* connection, ReceiveTable* table);

  // Sends entries in batches, before the sender has to wait. A batch is due when the receives that
  // the sender does not know are at least as many as its known incomplete receives.
  void SendInTime() {
    if (table_.unfinished() <= 2 * (connection_.next - unsent_)) Send();
  }
  // Sends all entries that the sender does not know, as far as there is room.
  void Send();
  // Sends the keys of fallback NICs as soon as they exist.
  void SendKeys();
  // The rail has failed: sends again the entries that the rail carried and that the sender did not
  // report as received.
  void Settle(size_t rail, const Cleared& report);

 private:
  // Sends the first unsent entries, as far as they are adjacent in the ring and have the same
  // usable rails. False: no room.
  bool SendSome();
  // True if the sender has to be told of the receive.
  static bool IsOwed(const Receive& receive) { return receive.IsOpen() && !receive.cleared; }
  // Returns the rails that can carry the receive's entries now, and updates the keys.
  uint32_t WaysFor(Receive* receive);
  // Returns the rails that have keys for all buffers of the receive, and writes the keys into
  // `entries`.
  [[nodiscard]] uint32_t PutKeys(const Receive& receive, ClearToSend* entries) const;
  // Sends the entries on the control connection.
  void SendEntries(const Receive& receive, const ClearToSend* entries);

  Connection& connection_;
  ReceiveTable& table_;
  uint64_t unsent_;  // the sender has been told of all receives before this one
};

}  // namespace rewire::net

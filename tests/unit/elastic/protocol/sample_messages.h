// One message of every type, with every field set, for tests of the codec. Thread-safe.
#pragma once

#include <string>
#include <vector>

#include "reconfig/elastic/protocol/messages.h"

namespace rewire::elastic {

inline World SampleWorld() {
  return {7, {{0, 100, "127.0.0.1:40000"}, {5, 101, "127.0.0.1:40001"}, {3, 102, ""}}};
}

inline std::vector<Message> SampleMessages() {
  const CommunicatorId c{0x0123456789abcdef, 42};
  WorldRecord record;
  record.world = SampleWorld();
  record.cuts = {{c, 10, 14}, {kUpdateBoundary, 3, 3}};
  record.secret.bytes = {99, 98, 97};
  record.revision = 12;
  record.reserved_epoch = 8;
  record.next_member = 6;
  return {
      Hello{3, 77, 4242, true, "127.0.0.1:40001", true, 6, 2, {{5, c}}},
      CommunicatorCreated{c, 4, {2}, true, "a live CUDA graph", "tensor", 3},
      CommunicatorDestroyed{c},
      Minted{8, c, UniqueIdBytes(128, '\x81'), {0, 2, 4}},
      Prepared{8, true, "", 1234567, {{c, 17}, {kUpdateBoundary, 5}}, true},
      Pledge{8, 2, false, c, "its program is past the cut", {{c, 18}}},
      AtBoundary{8, 41, true, {40, 41}, {40}, {{{0, 1, 2}, {0, 1, 2}, {}}, {{0}, {}, {0}}}},
      Verified{8, false, "a hash differs", 1 << 20, 1 << 21},
      Entered{8, 123456},
      Position{c, true, 7, true, 2, {{8, 20, 24}, {9, 30, 30}}, {5, 6}},
      Heartbeat{41, {{0, 1}, {13, 2}, {65535, 3}}},
      ReclaimNotice{120000},
      Finished{},
      Welcome{SampleWorld(), true, Key{{47, 11}}, SampleWorld().members},
      Refused{"member 3 counts as lost"},
      Prepare{8, TransitionKind::kBoundary, SampleWorld(), SampleWorld(), Key{{5}}, 60000, {c}},
      Build{8, {{c, 4, {1, 3}, UniqueIdBytes(128, 'u'), true}}},
      Propose{8, 1, {{c, 20, 24}}},
      Decide{8, 1, true},
      Restore{8, 40, {{0, 3}, {0, 3, 5}, {5}}},
      Commit{record},
      Abort{8, "not prepared in time"},
      Lost{7, {5}},
      Stop{"the state of slot 1 no longer exists on any member"},
      Retire{{{5, c}, {6, c}}},
      CommunicatorPinned{c, "a live CUDA graph"},
      Witness{},
      Forming{3},
  };
}

}  // namespace rewire::elastic

// The program hears of a version only while a stream or the copies wait for one.
#include "reconfig/elastic/participant/update_snapshots.h"

#include <gtest/gtest.h>

namespace rewire::elastic {
namespace {

bool Notifies(UpdateGate* gate) {
  gate->Begin();
  return gate->End();
}

TEST(UpdateSnapshotsTest, StreamedVersionIsReportedUntilItIsCleared) {
  UpdateGate gate;
  UpdateSnapshots snapshots(&gate, seconds(1));
  EXPECT_FALSE(Notifies(&gate));
  snapshots.SetStreamed(2);
  EXPECT_TRUE(Notifies(&gate));
  snapshots.ClearStreamed();
  EXPECT_FALSE(Notifies(&gate));
}

TEST(UpdateSnapshotsTest, FreezeWithoutSnapshotterDoesNothing) {
  UpdateGate gate;
  UpdateSnapshots snapshots(&gate, seconds(1));
  snapshots.Freeze();
  EXPECT_EQ(snapshots.snapshotter(), nullptr);
  EXPECT_FALSE(snapshots.started());
}

}  // namespace
}  // namespace rewire::elastic

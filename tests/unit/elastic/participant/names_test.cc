// Unique ids by name: minted once, waited for, and closed with a reason.
#include "reconfig/elastic/participant/names.h"

#include <gtest/gtest.h>

#include <thread>

#include "reconfig/world/identity.h"

namespace rewire::elastic {
namespace {

absl::Status NotEnded() { return absl::OkStatus(); }

TEST(NamesTest, CloseEndsWaitForUniqueIdWithItsReason) {
  Names names({1, 2, ""});
  absl::StatusOr<UniqueIdBytes> id = absl::UnknownError("");
  std::thread asks([&] {
    id = names.Resolve("world", {{0, 1, "127.0.0.1:1"}}, {}, Now() + seconds(600), NotEnded);
  });
  names.Close("the job has ended");
  asks.join();
  EXPECT_EQ(std::string(id.status().message()), "the job has ended");
}

TEST(NamesTest, ALossEndsTheWaitForAUniqueId) {
  Names names({1, 2, ""});
  const auto id = names.Resolve("world", {{0, 1, "127.0.0.1:1"}}, {}, Now() + seconds(600),
                                [] { return absl::UnavailableError("a member was lost"); });
  EXPECT_EQ(id.status(), absl::UnavailableError("a member was lost"));
}

TEST(NamesTest, MintsEachNameOnce) {
  Names names({0, 2, ""});
  int minted = 0;
  const auto mint = [&]() -> absl::StatusOr<UniqueIdBytes> {
    ++minted;
    return UniqueIdBytes(NCCL_UNIQUE_ID_BYTES + 7, 'u');
  };
  const auto first = names.Resolve("world", {}, mint, Now(), NotEnded);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->size(), size_t{NCCL_UNIQUE_ID_BYTES});
  EXPECT_EQ(*names.Resolve("world", {}, mint, Now(), NotEnded), *first);
  EXPECT_EQ(minted, 1);
  EXPECT_EQ(names.Find("world"), *first);
  EXPECT_TRUE(names.GaveOut(IdentityOfUniqueId(first->data())));
}

TEST(NamesTest, PublishReplacesTheValue) {
  Names names({0, 2, ""});
  EXPECT_EQ(names.Find(kNodeName), std::nullopt);
  names.Publish(std::string(kNodeName), "a");
  names.Publish(std::string(kNodeName), "b");
  EXPECT_EQ(names.Find(kNodeName), "b");
  EXPECT_EQ(names.Find("node"), std::nullopt);  // a program's name
}

}  // namespace
}  // namespace rewire::elastic

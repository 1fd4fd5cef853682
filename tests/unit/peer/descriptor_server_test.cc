// Descriptors from thread to thread as they go from member to member.
#include "reconfig/stream/descriptor_server.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "reconfig/base/mutex.h"

namespace rewire {
namespace {

// A file that holds one byte for each even index.
UniqueFd FileOf(uint32_t index) {
  if (index % 2 != 0) return UniqueFd();
  UniqueFd fd(memfd_create("shared", MFD_CLOEXEC));
  const char value = static_cast<char>('a' + index);
  EXPECT_EQ(pwrite(fd.get(), &value, 1, 0), 1);
  return fd;
}

char ByteOf(const UniqueFd& fd) {
  char value = 0;
  EXPECT_EQ(pread(fd.get(), &value, 1, 0), 1);
  return value;
}

Time Soon() { return Now() + seconds(20); }

TEST(DescriptorServer, GivesEachClientWhatItAsksFor) {
  const auto server = DescriptorServer::Start(FileOf);
  ASSERT_TRUE(server.ok());
  auto one = DescriptorClient::Connect((*server)->name());
  auto two = DescriptorClient::Connect((*server)->name());
  ASSERT_TRUE(one.ok() && two.ok());
  for (uint32_t index = 0; index < 20; index += 2) {
    EXPECT_EQ(ByteOf(one->Ask(index, Soon()).value()), static_cast<char>('a' + index));
    EXPECT_EQ(ByteOf(two->Ask(index + 2, Soon()).value()), static_cast<char>('c' + index));
  }
}

TEST(DescriptorServer, SaysWhatItDoesNotHave) {
  const auto server = DescriptorServer::Start(FileOf);
  ASSERT_TRUE(server.ok());
  auto client = DescriptorClient::Connect((*server)->name());
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(absl::IsNotFound(client->Ask(1, Soon()).status()));
  EXPECT_TRUE(client->Ask(2, Soon()).ok());
}

TEST(DescriptorServer, WhoAsksWronglyIsSentAwayAndOthersAreServed) {
  const auto server = DescriptorServer::Start(FileOf);
  ASSERT_TRUE(server.ok());
  const std::string& name = (*server)->name();
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, name.size());
  UniqueFd raw(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(raw.get(), reinterpret_cast<sockaddr*>(&address),
                    static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size())),
            0);
  ASSERT_EQ(send(raw.get(), "garbage", 7, 0), 7);
  char end = 0;
  EXPECT_EQ(recv(raw.get(), &end, 1, 0), 0);
  auto client = DescriptorClient::Connect(name);
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(client->Ask(2, Soon()).ok());
}

TEST(DescriptorServer, AClientOutlivesIt) {
  auto server = DescriptorServer::Start(FileOf);
  ASSERT_TRUE(server.ok());
  auto client = DescriptorClient::Connect((*server)->name());
  ASSERT_TRUE(client.ok());
  const std::string name = (*server)->name();
  server->reset();
  EXPECT_FALSE(client->Ask(2, Soon()).ok());
  EXPECT_FALSE(DescriptorClient::Connect(name).ok());
}

TEST(DescriptorServer, AnAnswerIsWaitedForUntilTheDeadline) {
  Mutex held;
  const auto server = DescriptorServer::Start([&](uint32_t index) {
    MutexLock lock(&held);
    return FileOf(index);
  });
  ASSERT_TRUE(server.ok());
  auto client = DescriptorClient::Connect((*server)->name());
  ASSERT_TRUE(client.ok());
  MutexLock lock(&held);
  EXPECT_TRUE(absl::IsDeadlineExceeded(client->Ask(2, Now()).status()));
}

}  // namespace
}  // namespace rewire

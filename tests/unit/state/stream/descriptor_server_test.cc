// Descriptors sent from thread to thread as from member to member.
#include "reconfig/state/stream/descriptor_server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "reconfig/base/counters.h"
#include "reconfig/base/mutex.h"
#include "reconfig/base/socket.h"

namespace rewire::state {
namespace {

// Returns a file that holds one byte for each even index.
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

// A connection that says nothing; not valid: the kernel's queue is full.
UniqueFd Raw(const std::string& name) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, name.size());
  UniqueFd raw(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const bool ok = connect(raw.get(), reinterpret_cast<sockaddr*>(&address), size) == 0;
  return ok ? std::move(raw) : UniqueFd();
}

bool Ends(const UniqueFd& raw) {
  char byte = 0;
  return WaitReady(raw.get(), POLLIN, Soon()) && recv(raw.get(), &byte, 1, 0) == 0;
}

TEST(DescriptorServer, GivesEachClientItsDescriptor) {
  const auto server = DescriptorServer::Start(FileOf);
  ASSERT_TRUE(server.ok());
  auto one = DescriptorClient::Connect((*server)->name(), Soon());
  auto two = DescriptorClient::Connect((*server)->name(), Soon());
  ASSERT_TRUE(one.ok() && two.ok());
  for (uint32_t index = 0; index < 20; index += 2) {
    EXPECT_EQ(ByteOf(one->Ask(index, Soon()).value()), static_cast<char>('a' + index));
    EXPECT_EQ(ByteOf(two->Ask(index + 2, Soon()).value()), static_cast<char>('c' + index));
  }
}

TEST(DescriptorServer, RefusesUnknownIndex) {
  const auto server = DescriptorServer::Start(FileOf);
  ASSERT_TRUE(server.ok());
  auto client = DescriptorClient::Connect((*server)->name(), Soon());
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(absl::IsNotFound(client->Ask(1, Soon()).status()));
  EXPECT_TRUE(client->Ask(2, Soon()).ok());
}

TEST(DescriptorServer, DropsClientWithMalformedRequest) {
  const auto server = DescriptorServer::Start(FileOf);
  ASSERT_TRUE(server.ok());
  const std::string& name = (*server)->name();
  const UniqueFd raw = Raw(name);
  ASSERT_TRUE(raw.valid());
  ASSERT_EQ(send(raw.get(), "garbage", 7, 0), 7);
  EXPECT_TRUE(Ends(raw));
  auto client = DescriptorClient::Connect(name, Soon());
  ASSERT_TRUE(client.ok());
  EXPECT_TRUE(client->Ask(2, Soon()).ok());
}

TEST(DescriptorServer, ClientReportsEndedServer) {
  auto server = DescriptorServer::Start(FileOf);
  ASSERT_TRUE(server.ok());
  auto client = DescriptorClient::Connect((*server)->name(), Soon());
  ASSERT_TRUE(client.ok());
  const std::string name = (*server)->name();
  server->reset();
  EXPECT_FALSE(client->Ask(2, Soon()).ok());
  EXPECT_FALSE(DescriptorClient::Connect(name, Soon()).ok());
}

TEST(DescriptorServer, ClientWaitsForAnswerUntilDeadline) {
  Mutex held;
  const auto server = DescriptorServer::Start([&](uint32_t index) {
    MutexLock lock(&held);
    return FileOf(index);
  });
  ASSERT_TRUE(server.ok());
  auto client = DescriptorClient::Connect((*server)->name(), Soon());
  ASSERT_TRUE(client.ok());
  MutexLock lock(&held);
  EXPECT_TRUE(absl::IsDeadlineExceeded(client->Ask(2, Now()).status()));
}

TEST(DescriptorServer, DisconnectsIdleClients) {
  const auto server = DescriptorServer::Start(FileOf, milliseconds(50));
  ASSERT_TRUE(server.ok());
  const uint64_t before = ValueOf(Counter::kStreamRefused);
  const UniqueFd silent = Raw((*server)->name());
  ASSERT_TRUE(silent.valid());
  EXPECT_TRUE(Ends(silent));
  EXPECT_EQ(ValueOf(Counter::kStreamRefused), before + 1);
}

TEST(DescriptorServer, ClientWaitsForPlaceInQueueUntilDeadline) {
  Mutex held;
  std::atomic<bool> entered{false};
  const auto server = DescriptorServer::Start([&](uint32_t index) {
    entered = true;
    MutexLock lock(&held);
    return FileOf(index);
  });
  ASSERT_TRUE(server.ok());
  const std::string name = (*server)->name();
  auto first = DescriptorClient::Connect(name, Soon());
  ASSERT_TRUE(first.ok());
  std::vector<UniqueFd> queued;
  {
    MutexLock lock(&held);
    EXPECT_TRUE(absl::IsDeadlineExceeded(first->Ask(2, Now()).status()));
    for (const Time deadline = Soon(); !entered && Now() < deadline;) std::this_thread::yield();
    ASSERT_TRUE(entered);
    do {
      queued.push_back(Raw(name));
    } while (queued.back().valid());
    EXPECT_TRUE(absl::IsDeadlineExceeded(
        DescriptorClient::Connect(name, Now() + milliseconds(20)).status()));
  }
  auto last = DescriptorClient::Connect(name, Soon());
  ASSERT_TRUE(last.ok()) << last.status();
  EXPECT_TRUE(last->Ask(2, Soon()).ok());
}

TEST(DescriptorServer, RefusesAndCountsOtherUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  const auto server = DescriptorServer::Start(FileOf);
  ASSERT_TRUE(server.ok());
  const uint64_t before = ValueOf(Counter::kStreamRefused);
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
    const UniqueFd raw = Raw((*server)->name());
    _exit(raw.valid() && Ends(raw) ? 0 : 3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ValueOf(Counter::kStreamRefused), before + 1);
}

}  // namespace
}  // namespace rewire::state

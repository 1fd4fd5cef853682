#include "tests/unit/net_plugin/socket_ends.h"

#include <gtest/gtest.h>
#include <netinet/in.h>

#include <thread>
#include <utility>

#include "tests/unit/net_plugin/proxy.h"

namespace rewire::net_test {

sockaddr_storage LoopbackV4() {
  sockaddr_storage out{};
  auto& in = reinterpret_cast<sockaddr_in&>(out);
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return out;
}

void SocketEnds::Join(int streams, const sockaddr_storage& local, net::Splitting splitting) {
  absl::StatusOr<net::ListenAddress> address = there.Listen(local);
  ASSERT_TRUE(address.ok()) << address.status();
  std::unique_ptr<net::Link> out;
  std::unique_ptr<net::Link> in;
  const Time deadline = Soon();
  while ((out == nullptr || in == nullptr) && Now() < deadline) {
    if (out == nullptr) {
      absl::StatusOr<std::unique_ptr<net::Link>> made = here.Connect(local, streams, &*address);
      ASSERT_TRUE(made.ok()) << made.status();
      out = *std::move(made);
    }
    if (in == nullptr) in = *there.Accept(address->listener);
  }
  ASSERT_TRUE(out != nullptr && in != nullptr);
  from_.clear();
  to_.clear();
  for (const net::Stream& s : out->streams) from_.push_back(s.fd());
  for (const net::Stream& s : in->streams) to_.push_back(s.fd());
  sender = std::make_unique<net::SocketSender>(std::move(out), &here, splitting);
  receiver = std::make_unique<net::SocketReceiver>(std::move(in), &there);
}

net::Request* SocketEnds::Send(const std::vector<char>& bytes) {
  const absl::StatusOr<net::Request*> r = sender->Isend(bytes.data(), bytes.size(), 0, nullptr);
  EXPECT_TRUE(r.ok()) << r.status();
  return r.ok() ? *r : nullptr;
}

net::Request* SocketEnds::Receive(std::vector<char>* into) {
  void* data = into->data();
  const size_t bytes = into->size();
  const int tag = 0;
  void* mr = nullptr;
  const absl::StatusOr<net::Request*> r = receiver->Irecv(1, &data, &bytes, &tag, &mr);
  EXPECT_TRUE(r.ok()) << r.status();
  return r.ok() ? *r : nullptr;
}

bool SocketEnds::Done(net::Comm* comm, net::Request* request) {
  const absl::StatusOr<bool> through = comm->Test(request, nullptr);
  EXPECT_TRUE(through.ok()) << through.status();
  return through.ok() && *through;
}

absl::Status SocketEnds::Wait(net::Comm* comm, net::Request* request) {
  const Time deadline = Soon();
  while (Now() < deadline) {
    const absl::StatusOr<bool> through = comm->Test(request, nullptr);
    if (!through.ok()) return through.status();
    if (*through) return absl::OkStatus();
    std::this_thread::yield();
  }
  return absl::DeadlineExceededError("the message does not come");
}

}  // namespace rewire::net_test

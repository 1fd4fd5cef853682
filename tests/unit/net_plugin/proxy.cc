#include "tests/unit/net_plugin/proxy.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "reconfig/abi/net_core.h"
#include "tests/simgpu/nccl/net_plugin.h"

namespace rewire::net_test {

namespace {

std::string Under(const char* file, const char* built) {
  const char* folder = std::getenv("NET_UNDER_TEST");
  return folder == nullptr ? built : std::string(folder) + "/" + file;
}

}  // namespace

std::shared_ptr<simnccl::Net> OpenPlugin(int abi) {
  void* library =
      dlopen(Under("libnccl-net-rewire.so", REWIRE_NET_PLUGIN).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    ADD_FAILURE() << dlerror();
    return nullptr;
  }
  using Adapt = std::shared_ptr<simnccl::Net> (*)(void*);
  const std::map<int, Adapt> adapters = {{8, simnccl::AdaptNetV8},
                                         {9, simnccl::AdaptNetV9},
                                         {10, simnccl::AdaptNetV10},
                                         {11, simnccl::AdaptNetV11},
                                         {12, simnccl::AdaptNetV12}};
  void* symbol = dlsym(library, ("ncclNetPlugin_v" + std::to_string(abi)).c_str());
  return symbol == nullptr ? nullptr : adapters.at(abi)(symbol);
}

Counters PluginCounters() {
  void* core = dlopen(Under("librewire-net.so", REWIRE_NET_CORE).c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto start = reinterpret_cast<net::CoreStart>(dlsym(core, net::kCoreStartSymbol));
  const char* why = nullptr;
  net::NetCounters c{};
  EXPECT_EQ(start(net::kCoreAbiVersion, &why)->counters(&c), ncclSuccess);
  return {c.links_made, c.links_reused, c.unauthenticated};
}

void OnThread(const std::function<void()>& work) {
  std::thread thread(work);
  thread.join();
}

Connection::Connection(simnccl::Net* net, void* context) : net_(net) {
  OnThread([&] {
    char raw[1 + simnccl::kNetHandleBytes];
    char* handle = raw + 1;
    void* listener = nullptr;
    ASSERT_EQ(net->Listen(context, 0, handle, &listener), ncclSuccess);
    const Time deadline = Soon();
    while ((sender_ == nullptr || receiver_ == nullptr) && Now() < deadline) {
      if (sender_ == nullptr) {
        ASSERT_EQ(net->Connect(context, 0, handle, &sender_), ncclSuccess);
      }
      if (receiver_ == nullptr) {
        ASSERT_EQ(net->Accept(listener, &receiver_), ncclSuccess);
      }
    }
    EXPECT_EQ(net->CloseListen(listener), ncclSuccess);
  });
  EXPECT_TRUE(connected());
}

void Connection::CloseSender() {
  void* sender = std::exchange(sender_, nullptr);
  if (sender == nullptr) return;
  OnThread([&] {
    for (const auto& [range, mr] : std::exchange(sender_memory_, {})) {
      EXPECT_EQ(net_->DeregMr(sender, mr), ncclSuccess);
    }
    EXPECT_EQ(net_->CloseSend(sender), ncclSuccess);
  });
}

void Connection::CloseReceiver() {
  void* receiver = std::exchange(receiver_, nullptr);
  if (receiver == nullptr) return;
  OnThread([&] {
    for (const auto& [range, mr] : std::exchange(receiver_memory_, {})) {
      EXPECT_EQ(net_->DeregMr(receiver, mr), ncclSuccess);
    }
    EXPECT_EQ(net_->CloseRecv(receiver), ncclSuccess);
  });
}

void* Connection::SenderMemory(const void* data, size_t bytes) {
  if (bytes == 0) return nullptr;
  void*& mr = sender_memory_[{data, bytes}];
  if (mr == nullptr) {
    EXPECT_EQ(net_->RegMr(sender_, const_cast<void*>(data), bytes, simnccl::kNetPtrHost, &mr),
              ncclSuccess);
  }
  return mr;
}

void* Connection::ReceiverMemory(void* data, size_t bytes) {
  void*& mr = receiver_memory_[{data, bytes}];
  if (mr == nullptr) {
    EXPECT_EQ(net_->RegMr(receiver_, data, bytes, simnccl::kNetPtrHost, &mr), ncclSuccess);
  }
  return mr;
}

ncclResult_t Connection::Isend(const std::vector<char>& bytes, int tag, void** request) {
  return net_->Isend(sender_, const_cast<char*>(bytes.data()), bytes.size(), tag,
                     SenderMemory(bytes.data(), bytes.size()), request);
}

ncclResult_t Connection::Irecv(std::vector<char>* bytes, int tag, void** request) {
  return net_->Irecv(receiver_, bytes->data(), bytes->size(), tag,
                     ReceiverMemory(bytes->data(), bytes->size()), request);
}

void Connection::Receive(std::vector<char>* bytes, void** request) {
  const Time deadline = Soon();
  while (*request == nullptr) {
    ASSERT_LT(Now(), deadline);
    ASSERT_EQ(Irecv(bytes, 0, request), ncclSuccess);
  }
}

std::vector<std::vector<char>> Connection::Carry(const std::vector<Message>& messages,
                                                 size_t room) {
  std::vector<std::vector<char>> got(messages.size());
  OnThread([&] {
    struct Pending {
      size_t index;
      void* request;
    };
    std::vector<Pending> sends;
    std::vector<Pending> receives;
    size_t sent = 0;
    size_t posted = 0;
    size_t received = 0;
    const Time deadline = Soon();
    while (received < messages.size() || !sends.empty()) {
      ASSERT_LT(Now(), deadline);
      void* request = nullptr;
      if (posted < messages.size()) {
        got[posted].resize(room);
        ASSERT_EQ(Irecv(&got[posted], messages[posted].tag, &request), ncclSuccess);
        if (request != nullptr) receives.push_back({posted++, request});
      }
      request = nullptr;
      if (sent < messages.size()) {
        const Message& m = messages[sent];
        ASSERT_EQ(Isend(m.bytes, m.tag, &request), ncclSuccess);
        if (request != nullptr) sends.push_back({sent++, request});
      }
      std::erase_if(sends, [&](const Pending& p) {
        int done = 0;
        EXPECT_EQ(net_->Test(p.request, &done, nullptr), ncclSuccess);
        return done != 0;
      });
      std::erase_if(receives, [&](const Pending& p) {
        int done = 0;
        int size = -1;
        EXPECT_EQ(net_->Test(p.request, &done, &size), ncclSuccess);
        if (done == 0) return false;
        got[p.index].resize(static_cast<size_t>(size));
        ++received;
        return true;
      });
    }
  });
  return got;
}

std::vector<char> Pattern(size_t bytes, uint64_t seed) {
  std::vector<char> out(bytes);
  uint64_t x = seed * 0x9E3779B97F4A7C15ULL + 1;
  for (size_t i = 0; i < bytes; ++i) {
    if (i % 8 == 0) x = x * 6364136223846793005ULL + 1442695040888963407ULL;
    out[i] = static_cast<char>(x >> (8 * (i % 8)));
  }
  return out;
}

}  // namespace rewire::net_test

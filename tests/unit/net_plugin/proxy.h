// NCCL's side of the plugin: the calls of its service thread and its progress thread for one
// direction of a connection. The calls use the vtable of any ABI version (as the simulated NCCL
// reads it). Owned by the test's thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "reconfig/base/clock.h"
#include "tests/simgpu/nccl/net.h"

namespace rewire::net_test {

// Opens the plugin of this ABI version, once per process, as NCCL opens it: from the folder
// NET_UNDER_TEST, or else from the build.
std::shared_ptr<simnccl::Net> OpenPlugin(int abi);
// The counters of the plugin's core.
struct Counters {
  uint64_t made, reused, unauthenticated;
};
Counters PluginCounters();

inline Time Soon() { return Now() + seconds(20); }

// Runs the work on another thread, because the service thread and the progress thread are two
// threads.
void OnThread(const std::function<void()>& work);

struct Message {
  std::vector<char> bytes;
  int tag = 0;
};

// A connected sender and receiver.
class Connection {
 public:
  // Passes the handle as NCCL does: a private copy at an unaligned address.
  explicit Connection(simnccl::Net* net, void* context = nullptr);
  ~Connection() { Close(); }
  Connection(const Connection&) = delete;

  // Registers memory with one end, until that end is closed.
  void* SenderMemory(const void* data, size_t bytes);
  void* ReceiverMemory(void* data, size_t bytes);
  // Isend and Irecv of this memory; requests and results are returned unchanged, also null.
  ncclResult_t Isend(const std::vector<char>& bytes, int tag, void** request);
  ncclResult_t Irecv(std::vector<char>* bytes, int tag, void** request);
  // Calls Irecv with tag 0 until there is a request.
  void Receive(std::vector<char>* bytes, void** request);

  // Sends and receives all messages, with as many outstanding as fit; returns the received
  // messages.
  std::vector<std::vector<char>> Carry(const std::vector<Message>& messages, size_t room);
  // Closes on the service thread.
  void CloseSender();
  void CloseReceiver();
  void Close() {
    CloseSender();
    CloseReceiver();
  }

  simnccl::Net* net() const { return net_; }
  void* sender() const { return sender_; }
  void* receiver() const { return receiver_; }
  [[nodiscard]] bool connected() const { return sender_ != nullptr && receiver_ != nullptr; }

 private:
  simnccl::Net* const net_;
  void* sender_ = nullptr;
  void* receiver_ = nullptr;
  std::map<std::pair<const void*, size_t>, void*> sender_memory_;
  std::map<std::pair<const void*, size_t>, void*> receiver_memory_;
};

// Returns bytes that depend on their position.
std::vector<char> Pattern(size_t bytes, uint64_t seed);

}  // namespace rewire::net_test

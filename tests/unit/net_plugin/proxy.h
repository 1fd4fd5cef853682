// NCCL's side of the plugin: what its service thread and its progress thread do with one direction
// of a connection, through the vtable of any ABI version (as the stand-in for NCCL reads it).
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

// The plugin of this ABI version: one in a process, opened as NCCL opens it, from the folder
// NET_UNDER_TEST or else as it was built.
std::shared_ptr<simnccl::Net> OpenPlugin(int abi);
// The counters of the plugin's core.
struct Counters {
  uint64_t made, reused, strangers;
};
Counters PluginCounters();

inline Time Soon() { return Now() + seconds(20); }

// Runs it on a thread of its own, as the service and the progress thread are two.
void OnThread(const std::function<void()>& work);

struct Message {
  std::vector<char> bytes;
  int tag = 0;
};

// A sender and a receiver that are connected.
class Connection {
 public:
  // With the handle as NCCL passes it: a private copy, at an address that is aligned to nothing.
  explicit Connection(simnccl::Net* net, void* context = nullptr);
  ~Connection() { Close(); }
  Connection(const Connection&) = delete;

  // Registered with one end, until that is closed.
  void* SenderMemory(const void* data, size_t bytes);
  void* ReceiverMemory(void* data, size_t bytes);
  // Isend and Irecv of such memory; null requests and results as they come.
  ncclResult_t Isend(const std::vector<char>& bytes, int tag, void** request);
  ncclResult_t Irecv(std::vector<char>* bytes, int tag, void** request);
  // Irecv with tag 0, until there is a request.
  void Receive(std::vector<char>* bytes, void** request);

  // Sends all and receives all, as many outstanding as fit; what was received.
  std::vector<std::vector<char>> Carry(const std::vector<Message>& messages, size_t room);
  // On the service thread.
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

// Bytes that tell where they belong.
std::vector<char> Pattern(size_t bytes, uint64_t seed);

}  // namespace rewire::net_test

// Transport over TCP: one owner thread ("rewire-data"), non-blocking sockets, and a deadline on
// every wait. Peers may send anything and die at any byte. The transport keeps few unauthenticated
// connections, and one connection for each sender of a stream.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "reconfig/base/clock.h"
#include "reconfig/base/cuda_driver.h"
#include "reconfig/base/event_loop.h"
#include "reconfig/base/listening_socket.h"
#include "reconfig/base/mutex.h"
#include "reconfig/state/stream/tcp_inbound.h"
#include "reconfig/state/stream/tcp_outbound.h"
#include "reconfig/state/stream/transport.h"

namespace rewire::state {

struct TcpOptions {
  std::string listen = "127.0.0.1:0";
  MemberId member = 0;
  uint64_t incarnation = 0;
  Duration connect = seconds(10);  // limit until a receiver has accepted the stream
  Duration stall = seconds(10);    // limit without progress of a handshake or fragment
  // Limit until the owner thread has run a command; past the limit, the process ends. The owner
  // thread waits only for a device, and needs a turn on a processor.
  Duration command = kDevicePatience + seconds(60);
};

class TcpTransport final : public Transport {
 public:
  static absl::StatusOr<std::unique_ptr<TcpTransport>> Start(const TcpOptions& options);
  // Ends and joins the thread. Waiting fragments end with kCancelled.
  ~TcpTransport() override;

  [[nodiscard]] std::string address() const override { return address_; }
  void Open(const StreamKey& key, std::vector<WorldMember> senders, FragmentSink* sink) override;
  void Close(const StreamKey& key) override;
  void Send(const StreamKey& key, const WorldMember& to, OutFragment fragment,
            std::function<void(absl::Status)> done) override;
  void AnswerNames(const Key& key, Lookup lookup) override;
  [[nodiscard]] TransportCounters counters() const override;

 private:
  TcpTransport(const TcpOptions& options, UniqueFd listener, std::string address);
  void Run();
  void AcceptAll(Time now);
  // Enforces the limits when a connection has reached another stage of its handshake.
  void OnStage(const TcpInbound& connection);
  // Drops one connection of this stage if the stage has more than `above`. False: it has not.
  bool DropPending(TcpInbound::Stage stage, size_t above);
  // Closes a member's older connections on the same stream, except a few that ask for names.
  void CloseOlder(const TcpInbound& member);
  // Runs `command` on the owner thread and waits for it. Called on another thread.
  void RunThere(std::function<void()> command);

  const TcpOptions options_;
  ListeningSocket listener_;
  const std::string address_;

  Inbox<std::function<void()>> commands_;
  Mutex mutex_;  // protects the end of a command that a caller waits for
  CondVar done_;

  OwnerThread owner_;
  // Owned by the transport's thread, except the counters in streams_.
  bool stopping_ = false;
  StreamTable streams_;
  std::list<TcpInbound> inbound_;
  std::map<std::pair<StreamKey, MemberId>, std::unique_ptr<TcpOutbound>> outbound_;

  std::thread thread_;
};

}  // namespace rewire::state

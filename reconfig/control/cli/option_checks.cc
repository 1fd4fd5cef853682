#include "reconfig/control/cli/option_checks.h"

#include <string>

#include "reconfig/control/agent/metrics_server.h"

namespace rewire::control {

CLI::Validator NotEmpty() {
  return {[](const std::string& value) { return value.empty() ? "must not be empty" : ""; }, ""};
}

CLI::Validator MetricsAddress() {
  return {[](const std::string& value) {
            const absl::Status checked = MetricsServer::CheckAddress(value);
            return std::string(checked.message());
          },
          ""};
}

}  // namespace rewire::control

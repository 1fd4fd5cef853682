// Formats the agent's answer as the text of `rewire status`. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace rewire::control {

std::string StatusText(const nlohmann::json& status);
// Returns one line about an ended transition: "epoch 3→4 boundary committed: prepared in 1.2 s,
// ...".
std::string TransitionText(const nlohmann::json& transition);

}  // namespace rewire::control

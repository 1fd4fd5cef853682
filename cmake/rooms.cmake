# Gives the libraries of a room the include paths that cmake/rooms.txt allows, and no others: an
# include against the table does not compile; lint finds those of a room below the own folder. Tests
# and benchmarks may include everything.
set_property(DIRECTORY ${CMAKE_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
             ${CMAKE_SOURCE_DIR}/cmake/rooms.txt)

# Each room is an interface target, whose include path holds a link to the room's folder alone.
file(STRINGS ${CMAKE_SOURCE_DIR}/cmake/rooms.txt lines REGEX "^[a-z]")
foreach(line ${lines})
  string(REGEX MATCH "^([^ ]+) \\| ?([^|]*)\\|" matched "${line}")
  set(room ${CMAKE_MATCH_1})
  string(REGEX MATCHALL "[^ ]+" needs "${CMAKE_MATCH_2}")
  string(REPLACE "/" "_" target "room_${room}")
  set(root ${CMAKE_BINARY_DIR}/rooms/${room})
  # The public headers are included as users include them.
  string(REGEX REPLACE "^reconfig/include/" "" name ${room})
  get_filename_component(parent ${root}/${name} DIRECTORY)
  file(MAKE_DIRECTORY ${parent})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/${room} ${root}/${name} SYMBOLIC)
  add_library(${target} INTERFACE)
  target_include_directories(${target} INTERFACE ${root})
  foreach(need ${needs})
    string(REPLACE "/" "_" need "room_${need}")
    target_link_libraries(${target} INTERFACE ${need})
  endforeach()
endforeach()

# rewire_room_of(TARGET): the include paths of the current folder's room, or of everything where the
# folder is not in a room. The include paths are not passed on to what links the target.
function(rewire_room_of target)
  file(RELATIVE_PATH folder ${CMAKE_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  string(REPLACE "/" "_" room "room_${folder}")
  if(TARGET ${room})
    target_link_libraries(${target} PRIVATE ${room})
  else()
    target_link_libraries(${target} PUBLIC rewire_flags)
  endif()
endfunction()

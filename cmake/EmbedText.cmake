# assay_embed(target OUT.cpp NAMESPACE files...): the files' bytes as string constants, so that the program needs none of them.
#   Run as a script (-P) it writes the source; the function adds the command.
if(CMAKE_SCRIPT_MODE_FILE)
  set(source "// Written by cmake/EmbedText.cmake.\n#include <string_view>\n\nnamespace ${NAMESPACE} {\n")
  string(REPLACE "|" ";" FILES "${FILES}")  # a list would be cut on its way through the command line
  foreach(file IN LISTS FILES)
    get_filename_component(name ${file} NAME)
    string(MAKE_C_IDENTIFIER ${name} name)
    file(READ ${file} hex HEX)
    string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${hex}")
    string(LENGTH "${hex}" size)
    math(EXPR size "${size} / 2")
    string(REGEX REPLACE "(................................................................)" "\\1\"\n    \"" bytes "${bytes}")
    string(APPEND source "extern const std::string_view ${name};\nconst std::string_view ${name}(\n    \"${bytes}\", ${size});\n")
  endforeach()
  file(WRITE ${OUT} "${source}}  // namespace ${NAMESPACE}\n")
  return()
endif()

set(embed_script ${CMAKE_CURRENT_LIST_FILE})
function(assay_embed target out namespace)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  list(JOIN files "|" list)
  add_custom_command(OUTPUT ${out} COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DNAMESPACE=${namespace} "-DFILES=${list}" -P ${embed_script}
                     DEPENDS ${files} ${embed_script} VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()

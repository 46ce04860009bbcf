// Holds the room until its first source lands.
namespace assay { int placeholder_ops() { return 0; } }

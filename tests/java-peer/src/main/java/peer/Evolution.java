package peer;

import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

import org.apache.paimon.casting.CastExecutor;
import org.apache.paimon.casting.CastExecutors;
import org.apache.paimon.fs.local.LocalFileIO;
import org.apache.paimon.schema.SchemaChange;
import org.apache.paimon.schema.SchemaManager;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.paimon.shade.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.paimon.types.DataType;

/** Changes of a table's schema, and the casts that they ask for. */
final class Evolution {
    private Evolution() {}

    /**
     * One commit of changes: [{"add", "type", "comment"?, "move"?}, {"rename", "to"}, {"drop"}, {"retype", "type"}, {"nullable", "to"}, {"comment", "to"},
     * {"default", "to"}, {"place", "move"}, {"set", "to"}, {"unset"}, {"describe"}], columns as names or paths; a move is ["FIRST"] or ["AFTER", "c"].
     */
    static long alter(Path table, JsonNode changes) throws Exception {
        List<SchemaChange> found = new ArrayList<>();
        for (JsonNode change : changes) {
            if (change.has("add")) {
                String[] added = path(change.get("add"));
                found.add(
                        SchemaChange.addColumn(
                                added, Values.type(change.get("type")), text(change.get("comment")), move(added[added.length - 1], change.get("move"))));
            } else if (change.has("rename")) {
                found.add(SchemaChange.renameColumn(path(change.get("rename")), change.get("to").asText()));
            } else if (change.has("drop")) {
                found.add(SchemaChange.dropColumn(path(change.get("drop"))));
            } else if (change.has("retype")) {
                found.add(SchemaChange.updateColumnType(path(change.get("retype")), Values.type(change.get("type")), true));
            } else if (change.has("nullable")) {
                found.add(SchemaChange.updateColumnNullability(path(change.get("nullable")), change.get("to").asBoolean()));
            } else if (change.has("comment")) {
                found.add(SchemaChange.updateColumnComment(path(change.get("comment")), text(change.get("to"))));
            } else if (change.has("default")) {
                found.add(SchemaChange.updateColumnDefaultValue(path(change.get("default")), text(change.get("to"))));
            } else if (change.has("place")) {
                found.add(SchemaChange.updateColumnPosition(move(change.get("place").asText(), change.get("move"))));
            } else if (change.has("unset")) {
                found.add(SchemaChange.removeOption(change.get("unset").asText()));
            } else if (change.has("describe")) {
                found.add(SchemaChange.updateComment(text(change.get("describe"))));
            } else {
                found.add(SchemaChange.setOption(change.get("set").asText(), change.get("to").asText()));
            }
        }
        org.apache.paimon.fs.Path location = new org.apache.paimon.fs.Path(table.toAbsolutePath().normalize().toString());
        return new SchemaManager(LocalFileIO.create(), location).commitChanges(found).id();
    }

    private static String text(JsonNode node) {
        return node == null || node.isNull() ? null : node.asText();
    }

    private static SchemaChange.Move move(String column, JsonNode place) {
        if (place == null || place.isNull()) {
            return null;
        }
        String reference = place.size() > 1 ? place.get(1).asText() : null;
        return new SchemaChange.Move(column, reference, SchemaChange.Move.MoveType.valueOf(place.get(0).asText()));
    }

    private static String[] path(JsonNode node) {
        if (node.isTextual()) {
            return new String[] {node.asText()};
        }
        List<String> names = new ArrayList<>();
        node.forEach(name -> names.add(name.asText()));
        return names.toArray(new String[0]);
    }

    /** Lines {"from", "to", "values"}: the cast values, {"error"} in place of one that cannot be cast; null: there is no such cast. */
    static void casts(Path file, PrintWriter out) throws Exception {
        for (String line : Files.readAllLines(file)) {
            JsonNode node = Values.JSON.readTree(line);
            DataType from = Values.type(node.get("from"));
            DataType to = Values.type(node.get("to"));
            ObjectNode answer = Values.JSON.createObjectNode();
            answer.set("from", node.get("from"));
            answer.set("to", node.get("to"));
            answer.set("values", node.get("values"));
            answer.set("answers", answers(from, to, node.get("values")));
            out.println(answer);
        }
    }

    @SuppressWarnings("unchecked")
    private static JsonNode answers(DataType from, DataType to, JsonNode values) {
        CastExecutor<Object, Object> cast = (CastExecutor<Object, Object>) CastExecutors.resolve(from, to);
        if (cast == null) {
            return Values.JSON.nullNode();
        }
        ArrayNode answers = Values.JSON.createArrayNode();
        for (JsonNode value : values) {
            try {
                answers.add(value.isNull() ? value : Values.toJson(cast.cast(Values.fromJson(value, from)), to));
            } catch (RuntimeException e) {
                answers.add(Values.JSON.createObjectNode().put("error", String.valueOf(e.getMessage())));
            }
        }
        return answers;
    }
}

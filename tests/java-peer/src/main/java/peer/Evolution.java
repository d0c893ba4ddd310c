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

    /** One commit of changes: [{"add", "type"}, {"rename", "to"}, {"drop"}, {"retype", "type"}, {"set", "to"}], columns as names or paths. */
    static long alter(Path table, JsonNode changes) throws Exception {
        List<SchemaChange> found = new ArrayList<>();
        for (JsonNode change : changes) {
            if (change.has("add")) {
                found.add(SchemaChange.addColumn(path(change.get("add")), Values.type(change.get("type")), null, null));
            } else if (change.has("rename")) {
                found.add(SchemaChange.renameColumn(path(change.get("rename")), change.get("to").asText()));
            } else if (change.has("drop")) {
                found.add(SchemaChange.dropColumn(path(change.get("drop"))));
            } else if (change.has("retype")) {
                found.add(SchemaChange.updateColumnType(path(change.get("retype")), Values.type(change.get("type")), true));
            } else {
                found.add(SchemaChange.setOption(change.get("set").asText(), change.get("to").asText()));
            }
        }
        org.apache.paimon.fs.Path location = new org.apache.paimon.fs.Path(table.toAbsolutePath().normalize().toString());
        return new SchemaManager(LocalFileIO.create(), location).commitChanges(found).id();
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

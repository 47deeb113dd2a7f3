import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.flink.connector.kafka.dynamic.metadata.ClusterMetadata;
import org.apache.flink.connector.kafka.dynamic.metadata.KafkaMetadataService;
import org.apache.flink.connector.kafka.dynamic.metadata.KafkaStream;

/** The metadata of a dynamic source: each file of a folder is a stream, and holds the name of its topic. */
final class Streams implements KafkaMetadataService {
    private static final long serialVersionUID = 1;
    private final String folder;
    private final Properties cluster;

    Streams(String folder, Properties client, String servers) {
        this.folder = folder;
        cluster = new Properties();
        cluster.putAll(client);
        cluster.setProperty("bootstrap.servers", servers);
    }

    @Override
    public Set<KafkaStream> getAllStreams() {
        try (var files = Files.list(Path.of(folder))) {
            return files.map(file -> stream(file.getFileName().toString())).collect(Collectors.toSet());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public Map<String, KafkaStream> describeStreams(Collection<String> names) {
        return names.stream().collect(Collectors.toMap(Function.identity(), this::stream));
    }

    private KafkaStream stream(String name) {
        try {
            Set<String> topics = Set.of(Files.readString(Path.of(folder, name)).strip());
            return new KafkaStream(name, Map.of("here", new ClusterMetadata(topics, cluster)));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public boolean isClusterActive(String id) {
        return id.equals("here");
    }

    @Override
    public void close() {}
}
